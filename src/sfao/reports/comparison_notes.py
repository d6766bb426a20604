"""The notes under a comparison: what its numbers mean, and what to beware of."""

from sfao.reports.comparison import Group, RunWarning

#: Opens a note that the reader must not miss.
WARNING = "warning"


def write_notes(group: Group) -> list[str]:
    """Return all notes under a table."""
    caveat = [group.caveat] if group.caveat else []
    uneven = [f"{WARNING}: {group.uneven}"] if group.uneven else []
    return caveat + write_reading_notes(group) + uneven + [_note_warning(warned) for warned in group.warnings]


def write_reading_notes(group: Group) -> list[str]:
    """Return the notes on what the numbers of a table mean."""
    lines = []
    if any(row.test for row in group.rows):
        lines.append(
            f"p: two-sided paired t-test of average accuracy against {group.baseline}, the best baseline here, "
            f"over the same seeds{_pairs(group)}; not corrected for several methods."
        )
        lines += _note_untested(group)
    if any(row.is_bound for row in group.rows):
        lines.append("joint stores all data: a bound, not ranked.")
    return lines + _note_stacks(group)


def _note_stacks(group: Group) -> list[str]:
    names: dict[int, list[str]] = {}
    for row in group.rows:
        if row.stacked:
            names.setdefault(row.stacked, []).append(row.method)
    return [
        f"{', '.join(methods)}: stacked, up to {runs} runs at once; time is a run's share of the stack's, "
        "and all other numbers equal those of single runs within seed noise."
        for runs, methods in names.items()
    ]


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
