"""A comparison for people (rich, Markdown) and for scripts (JSON)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sfao.experiment.statistics import Spread
from sfao.reports.comparison import Comparison, Group, Row, Warned

#: Columns of a terminal that leave room between those of the table.
SPACIOUS = 100

HEADINGS = ("method", "n", "accuracy", "95 % interval", "forgetting", "held", "time", "p", "notes")


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Plain containers, numbers in full precision."""
    return {"groups": [asdict(group) for group in comparison.groups], "notice": comparison.notice}


def as_markdown(comparison: Comparison) -> str:
    parts = [comparison.notice] if comparison.notice else []
    for group in comparison.groups:
        rows = cells(group, "**{}**".format, "*{}*".format)
        table = [_markdown_row(HEADINGS), "|---|" + "---:|" * 7 + "---|", *map(_markdown_row, rows)]
        parts.append("\n".join([f"## {group.title}", "", *table, "", *(f"- {note}" for note in notes(group))]))
    return "\n\n".join(parts) + "\n"


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def show(comparison: Comparison, console: Console) -> None:
    if comparison.notice:
        console.print(comparison.notice, style="yellow", highlight=False)
    for group in comparison.groups:
        console.print(_table(group, spacious=console.width >= SPACIOUS))
        for note in notes(group):
            console.print(note, highlight=False, markup=False, style="yellow" if note.startswith("warning") else "dim")


def _table(group: Group, spacious: bool) -> Table:
    """It fits a terminal of 80 columns unless there is trouble to tell."""
    columns = range(len(HEADINGS) if any(row.trouble for row in group.rows) else len(HEADINGS) - 1)
    table = Table(
        title=group.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, int(spacious), 0, 0), show_edge=False
    )
    for number in columns:
        table.add_column(HEADINGS[number], justify="left" if number in (0, 8) else "right", no_wrap=number > 0)
    for row, texts in zip(group.rows, cells(group, "[bold]{}[/]".format, str), strict=True):
        table.add_row(*(texts[number] for number in columns), style="dim" if row.is_bound else None)
    return table


def notes(group: Group) -> list[str]:
    """What stands under a table."""
    caveat = [group.caveat] if group.caveat else []
    uneven = [f"warning: {group.uneven}"] if group.uneven else []
    return caveat + reading_notes(group) + uneven + [_warning(warned) for warned in group.warnings]


def reading_notes(group: Group) -> list[str]:
    """What the numbers of a table mean."""
    lines = []
    if any(row.test for row in group.rows):
        lines.append(
            f"p: two-sided paired t-test of average accuracy against {group.baseline}, the best baseline here, "
            f"over the same seeds{_pairs(group)}; not corrected for several methods."
        )
        lines += _untested(group)
    if any(row.is_bound for row in group.rows):
        lines.append("joint stores all data: a bound, not ranked.")
    return lines


def _untested(group: Group) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for row in group.rows:
        if row.test and row.test.reason:
            reasons.setdefault(row.test.reason, []).append(row.method)
    return [f"no p for {', '.join(names)}: {reason}." for reason, names in reasons.items()]


def _pairs(group: Group) -> str:
    """How many seeds, where all tests have as many."""
    counts = {row.test.n for row in group.rows if row.test}
    if len(counts) != 1:
        return ""
    (count,) = counts
    return f" ({count} pair{'s' * (count != 1)})"


def _warning(warned: Warned) -> str:
    return f"warning ({concerned(warned)}): {warned.text}"


def concerned(warned: Warned) -> str:
    """The runs that a warning is about."""
    return "; ".join(f"{name}, seed{'s' * (len(seeds) > 1)} {_listed(seeds)}" for name, seeds in warned.runs.items())


def _listed(seeds: list[int]) -> str:
    return ", ".join(str(seed) for seed in seeds)


def cells(
    group: Group, bold: Callable[[str], str], dim: Callable[[str], str], escape: Callable[[str], str] = str
) -> list[list[str]]:
    """The table as text; the best of a column is bold, among methods all of whose runs are done."""
    plain = [[escape(cell) for cell in _row_cells(row, group.baseline)] for row in group.rows]
    for number, column in best_cells(group):
        plain[number][column] = bold(plain[number][column])
    for number, row in enumerate(group.rows):
        if row.is_bound:
            plain[number] = [dim(cell) if cell else cell for cell in plain[number]]
    return plain


def best_cells(group: Group) -> list[tuple[int, int]]:
    """(row, column) of the best of each ranked column of HEADINGS; none where all are equal."""
    found = []
    ranked = [number for number, row in enumerate(group.rows) if row.whole and not row.is_bound]
    for column, best in ((2, _highest), (4, _lowest), (5, _lowest), (6, _lowest)):
        values = {number: _value(group.rows[number], column) for number in ranked}
        if len(set(values.values())) > 1:
            found += [(number, column) for number in best(values)]
    return found


def _value(row: Row, column: int) -> float:
    """What a column ranks by, as precise as it is shown, so that equals are equally bold."""
    spread = row.accuracy if column == 2 else row.forgetting
    if column in (2, 4):
        return round(spread.mean, 3) if spread else 0.0
    return (row.memory_bytes if column == 5 else round(row.seconds or 0.0, 1)) or 0.0


def _highest(values: dict[int, float]) -> list[int]:
    return [number for number, value in values.items() if value == max(values.values())]


def _lowest(values: dict[int, float]) -> list[int]:
    return [number for number, value in values.items() if value == min(values.values())]


def _row_cells(row: Row, baseline: str) -> list[str]:
    return [
        row.method,
        str(row.done) if row.whole else f"{row.done} of {row.asked}",
        mean_text(row.accuracy),
        interval_text(row.accuracy),
        mean_text(row.forgetting),
        "" if row.memory_bytes is None else bytes_in_words(row.memory_bytes),
        _time(row),
        p_text(row, baseline),
        row.trouble,
    ]


def mean_text(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{spread.mean:.3f}" if spread.std is None else f"{spread.mean:.3f} ± {spread.std:.3f}"


def interval_text(spread: Spread | None) -> str:
    if spread is None or spread.low is None:
        return ""
    return f"{spread.low:.3f}, {spread.high:.3f}"


def _time(row: Row) -> str:
    if row.seconds is None:
        return ""
    return f"{row.seconds:.1f} s" + ("" if row.times_sgd is None else f" {row.times_sgd:4.1f}x")


def bytes_in_words(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def p_text(row: Row, baseline: str) -> str:
    if row.test is None:
        return "best" if row.method == baseline else ""
    if row.test.p is None:
        return "-"
    return "<0.0001" if row.test.p < 1e-4 else f"{row.test.p:.4f}"
