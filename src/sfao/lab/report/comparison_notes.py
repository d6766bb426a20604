"""The notes under a comparison: what its numbers mean, and what to beware of."""

from sfao.lab.report.comparison import Group, RunWarning

#: Opens a note that the reader must not miss.
WARNING = "warning"
STORES_DATA = "stores data"


def write_notes(group: Group) -> list[str]:
    """Return all notes under a table."""
    caveat = [group.caveat] if group.caveat else []
    uneven = [f"{WARNING}: {group.uneven}"] if group.uneven else []
    return caveat + write_reading_notes(group) + uneven + [_note_warning(warned) for warned in group.warnings]


def write_reading_notes(group: Group) -> list[str]:
    """Return the notes on what the numbers of a table mean."""
    lines = _note_bold(group)
    if any(row.test for row in group.rows):
        lines.append(
            f"p: two-sided paired t-test of average accuracy against the baseline, {group.baseline}, "
            f"over the same seeds{_pairs(group)}; not corrected for several methods."
        )
        lines += _note_untested(group)
    return lines + _note_stored_data(group)


def _note_bold(group: Group) -> list[str]:
    """Tell what is bold, and what `learnt` is, where there are accuracies to rank."""
    if not any(row.accuracy for row in group.rows):
        return []
    learnt = "learnt: accuracy on each task just after it was learnt"
    if len([row for row in group.rows if row.is_complete and not row.is_bound]) < 2:
        return [f"{learnt}."]
    return [f"{learnt}. Bold: the best, and what lies in its 95 % interval."]


def _note_stored_data(group: Group) -> list[str]:
    """Tell which rows store data, and that those are not ranked."""
    storing = [row.method for row in group.rows if row.stores_data]
    if not storing:
        return []
    bounds = [row.method for row in group.rows if row.is_bound]
    unranked = "; bounds, never the best" if bounds == storing else ""
    return [f"{STORES_DATA}, counted as held: {', '.join(storing)}{unranked}."]


def _note_untested(group: Group) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for row in group.rows:
        if row.test and row.test.reason:
            reasons.setdefault(row.test.reason, []).append(row.method)
    return [f"no p for {', '.join(names)}: {reason}." for reason, names in reasons.items()]


def _pairs(group: Group) -> str:
    """The number of seeds, where all tests have as many."""
    counts = {row.test.n for row in group.rows if row.test}
    if len(counts) != 1:
        return ""
    (count,) = counts
    return f" ({count} pair{'s' * (count != 1)})"


def _note_warning(warned: RunWarning) -> str:
    return f"{WARNING} ({list_runs(warned)}): {warned.text}"


def list_runs(warned: RunWarning) -> str:
    """Return the runs that a warning is about, in words."""
    return "; ".join(
        f"{name}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}" for name, seeds in warned.runs.items()
    )
