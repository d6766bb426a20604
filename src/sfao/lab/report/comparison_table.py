"""A comparison as a table: its columns and notes, on a terminal, as Markdown, LaTeX and JSON."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from sfao.lab.console import PlainConsole
from sfao.lab.metrics import Spread
from sfao.lab.report.comparison import Comparison, Group, Row, RunWarning
from sfao.lab.report.tables import (
    WARNING,
    Column,
    Table,
    best_among,
    escape_text,
    never,
    print_table,
    render_latex,
    render_markdown,
)

INTERVAL = "95 % interval"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return plain containers with numbers in full precision."""
    groups = []
    for group in comparison.groups:
        rows = [asdict(replace(row, records=())) for row in group.rows]
        groups.append({**asdict(replace(group, rows=[])), "rows": rows})
        for row in rows:
            del row["records"]
    return {"groups": groups, "notice": comparison.notice}


def as_markdown(comparison: Comparison) -> str:
    """Return one table per group, with all columns."""
    notice = [escape_text(comparison.notice)] if comparison.notice else []
    return "\n\n".join([*notice, *(render_markdown(make_table(group)) for group in comparison.groups)]) + "\n"


def as_latex(comparison: Comparison) -> str:
    """Return one table per group, without the interval so that it fits the width of a paper."""
    tables = []
    for number, group in enumerate(comparison.groups, start=1):
        table = make_table(group)
        columns = [column for column in table.columns if column.title != INTERVAL]
        title = f"{group.title}: mean and standard deviation over n seeds."
        tables.append(render_latex(replace(table, title=title, columns=columns), label=f"tab:comparison-{number}"))
    return "% \\usepackage{booktabs}\n" + "\n".join(tables)


def print_comparison(comparison: Comparison, console: PlainConsole) -> None:
    """Print one table per group."""
    if comparison.notice:
        console.print(comparison.notice, style="yellow")
    for group in comparison.groups:
        print_table(make_table(group), console)


def make_table(group: Group) -> Table[Row]:
    """Return all columns and notes; methods that store data beside others are apart."""
    return Table(group.title, list_columns(group), group.rows, write_notes(group), is_apart=lambda row: row.is_bound)


# -- Columns ---------------------------------------------------------------------------------------------------------


def list_columns(group: Group) -> list[Column[Row]]:
    """Return the columns. Complete rows that are no bounds are ranked, by the digits shown."""
    ranked = [row for row in group.rows if row.is_complete and not row.is_bound]

    def number(title: str, text: Callable[[Row], str], is_best: Callable[[Row], bool] = never) -> Column[Row]:
        return Column(title, text, is_best=is_best, align="right")

    def near(name: str, choose: Callable[[Sequence[float]], float]) -> Callable[[Row], bool]:
        return _near_best(ranked, lambda row: getattr(row, name), choose)

    columns = [
        Column[Row]("method", lambda row: row.method, wraps=True),
        number("n", lambda row: str(row.done) if row.is_complete else f"{row.done} of {row.asked}"),
        number("accuracy", lambda row: format_mean(row.accuracy), near("accuracy", max)),
        number(INTERVAL, lambda row: format_interval(row.accuracy)),
        number("learned", lambda row: f"{row.learned.mean:.3f}" if row.learned else "", near("learned", max)),
        number("forgetting", lambda row: format_mean(row.forgetting), near("forgetting", min)),
        number("held", format_memory, best_among(ranked, lambda row: row.memory_bytes or 0.0, min)),
        number("time", format_time, best_among(ranked, lambda row: round(row.seconds or 0.0, 1), min)),
        number("p", lambda row: "baseline" if row.method == group.baseline else format_p_value(row)),
    ]
    if any(row.rollbacks is not None for row in group.rows):
        columns.append(number("rollbacks", lambda row: "" if row.rollbacks is None else f"{row.rollbacks:.1f}"))
    if any(row.failures for row in group.rows):
        columns.append(Column("notes", lambda row: row.failures))
    return columns


def _near_best(
    rows: Sequence[Row], spread_of: Callable[[Row], Spread], choose: Callable[[Sequence[float]], float]
) -> Callable[[Row], bool]:
    """Return the predicate of the best rows, and of all whose mean lies in the 95 % interval of one of them."""
    is_first = best_among(rows, lambda row: round(spread_of(row).mean, 3), choose)
    best = [spread_of(row) for row in rows if is_first(row)]
    near = [row.method for row in rows if is_first(row) or any(_is_within(spread_of(row).mean, one) for one in best)]
    return lambda row: row.method in near


def _is_within(value: float, spread: Spread) -> bool:
    """Return True if a value lies in the 95 % interval; one run alone has none."""
    return spread.low is not None and spread.high is not None and spread.low <= value <= spread.high


def format_mean(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{spread.mean:.3f}" if spread.std is None else f"{spread.mean:.3f} ± {spread.std:.3f}"


def format_interval(spread: Spread | None) -> str:
    return "" if spread is None or spread.low is None else f"{spread.low:.3f}, {spread.high:.3f}"


def format_memory(row: Row) -> str:
    return "" if row.memory_bytes is None else format_size(row.memory_bytes)


def format_time(row: Row) -> str:
    time = "" if row.seconds is None else f"{row.seconds:.1f} s"
    return time + ("" if row.times_sgd is None else f" {row.times_sgd:4.1f}x")


def format_size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def format_p_value(row: Row) -> str:
    if row.test is None:
        return ""
    if row.test.p is None:
        return "-"
    return "<0.0001" if row.test.p < 1e-4 else f"{row.test.p:.4f}"


# -- Notes -----------------------------------------------------------------------------------------------------------


def write_notes(group: Group) -> list[str]:
    """Return the notes under a table: what its numbers mean, and what to beware of."""
    notes = [group.caveat] if group.caveat else []
    if any(row.accuracy for row in group.rows):
        notes.append(
            "learned: accuracy on each task just after it was learned. Bold: the best, and what lies in its "
            "95 % interval."
        )
    if tests := {row.method: row.test for row in group.rows if row.test}:
        notes.append(
            f"p: two-sided paired t-test of average accuracy against the baseline, {group.baseline}, "
            "over the same seeds; not corrected for several methods."
        )
        for reason in dict.fromkeys(test.reason for test in tests.values() if test.reason):
            names = [name for name, test in tests.items() if test.reason == reason]
            notes.append(f"no p for {', '.join(names)}: {reason}.")
    if bounds := [row.method for row in group.rows if row.is_bound]:
        notes.append(f"Not ranked, as they store data, which counts as held: {', '.join(bounds)}.")
    if group.setting_mismatch:
        notes.append(f"{WARNING}: {group.setting_mismatch}")
    return notes + [f"{WARNING} ({list_runs(warned)}): {warned.text}" for warned in group.warnings]


def list_runs(warned: RunWarning) -> str:
    """Return the runs that a warning is about, in words."""
    return "; ".join(
        f"{name}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}" for name, seeds in warned.runs.items()
    )
