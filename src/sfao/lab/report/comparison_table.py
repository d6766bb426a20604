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

#: Marks a method that stores data where there is no room for words.
MARK = "*"
STORES_DATA = "stores data"

METHOD = Column[Row]("method", lambda row: row.method + f" ({STORES_DATA})" * row.stores_data, wraps=True)
MARKED_METHOD = Column[Row]("method", lambda row: row.method + f" {MARK}" * row.stores_data, wraps=True)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return plain containers with numbers in full precision."""
    return {"groups": [asdict(group) for group in comparison.groups], "notice": comparison.notice}


def as_markdown(comparison: Comparison) -> str:
    """Return one table per group, with all columns."""
    notice = [escape_text(comparison.notice)] if comparison.notice else []
    return "\n\n".join([*notice, *(render_markdown(make_table(group)) for group in comparison.groups)]) + "\n"


def as_latex(comparison: Comparison) -> str:
    """Return one table per group, without the interval so that it fits the width of a paper."""
    tables = []
    for number, group in enumerate(comparison.groups, start=1):
        columns = [MARKED_METHOD, *(column for column in list_numbers(group) if column.title != "95 % interval")]
        title = f"{group.title}: mean and standard deviation over n seeds."
        table = Table(title, columns, group.rows, _mark_notes(write_notes(group)), lambda row: row.is_bound)
        tables.append(render_latex(table, label=f"tab:comparison-{number}"))
    return "% \\usepackage{booktabs}\n" + "\n".join(tables)


def print_comparison(comparison: Comparison, console: PlainConsole) -> None:
    """Print one table per group."""
    if comparison.notice:
        console.print(comparison.notice, style="yellow")
    for group in comparison.groups:
        table = replace(make_table(group), columns=[MARKED_METHOD, *list_numbers(group)])
        print_table(replace(table, notes=_mark_notes(table.notes)), console)


def make_table(group: Group) -> Table[Row]:
    """Return all columns and notes; methods that store data beside others are apart."""
    columns = [METHOD, *list_numbers(group)]
    return Table(group.title, columns, group.rows, write_notes(group), is_apart=lambda row: row.is_bound)


# -- Columns ---------------------------------------------------------------------------------------------------------


def list_numbers(group: Group) -> list[Column[Row]]:
    """Return the columns beside the method. Complete rows that are no bounds are ranked, by the digits shown."""
    ranked = [row for row in group.rows if row.is_complete and not row.is_bound]

    def number(title: str, text: Callable[[Row], str], is_best: Callable[[Row], bool] = never) -> Column[Row]:
        return Column(title, text, is_best=is_best, align="right")

    columns = [
        number("n", lambda row: str(row.done) if row.is_complete else f"{row.done} of {row.asked}"),
        number("accuracy", lambda row: format_mean(row.accuracy), _near_best(ranked, lambda row: row.accuracy, max)),
        number("95 % interval", lambda row: format_interval(row.accuracy)),
        number(
            "learned",
            lambda row: f"{row.learned.mean:.3f}" if row.learned else "",
            _near_best(ranked, lambda row: row.learned, max),
        ),
        number(
            "forgetting", lambda row: format_mean(row.forgetting), _near_best(ranked, lambda row: row.forgetting, min)
        ),
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
    rows: Sequence[Row], spread_of: Callable[[Row], Spread | None], choose: Callable[[Sequence[float]], float]
) -> Callable[[Row], bool]:
    """Return the predicate of the best rows, and of all whose mean lies in the 95 % interval of one of them."""
    shown = {row.method: spread for row in rows if (spread := spread_of(row))}
    is_first = best_among(rows, lambda row: round(shown[row.method].mean, 3) if row.method in shown else 0.0, choose)
    best = [shown[row.method] for row in rows if row.method in shown and is_first(row)]

    def is_near(row: Row) -> bool:
        own = shown.get(row.method)
        return own is not None and (is_first(row) or any(_is_within(own.mean, spread) for spread in best))

    return is_near


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
    """Return the bytes held; `all data` of joint in older records, which did not count them."""
    if row.memory_bytes is None:
        return ""
    return "all data" if row.stores_data and row.memory_bytes == 0 else format_size(row.memory_bytes)


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
    caveat = [group.caveat] if group.caveat else []
    mismatch = [f"{WARNING}: {group.setting_mismatch}"] if group.setting_mismatch else []
    warnings = [f"{WARNING} ({list_runs(warned)}): {warned.text}" for warned in group.warnings]
    return [
        *caveat,
        *_explain_columns(group),
        *_explain_test(group),
        *_explain_stored_data(group),
        *mismatch,
        *warnings,
    ]


def list_runs(warned: RunWarning) -> str:
    """Return the runs that a warning is about, in words."""
    return "; ".join(
        f"{name}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}" for name, seeds in warned.runs.items()
    )


def _explain_columns(group: Group) -> list[str]:
    if not any(row.accuracy for row in group.rows):
        return []
    learned = "learned: accuracy on each task just after it was learned"
    if len([row for row in group.rows if row.is_complete and not row.is_bound]) < 2:
        return [f"{learned}."]
    return [f"{learned}. Bold: the best, and what lies in its 95 % interval."]


def _explain_test(group: Group) -> list[str]:
    tests = {row.method: row.test for row in group.rows if row.test}
    if not tests:
        return []
    counts = {test.n for test in tests.values()}
    count = next(iter(counts))
    pairs = f" ({count} pair{'s' * (count != 1)})" if len(counts) == 1 else ""
    reasons: dict[str, list[str]] = {}
    for method, test in tests.items():
        if test.reason:
            reasons.setdefault(test.reason, []).append(method)
    return [
        f"p: two-sided paired t-test of average accuracy against the baseline, {group.baseline}, "
        f"over the same seeds{pairs}; not corrected for several methods.",
        *(f"no p for {', '.join(names)}: {reason}." for reason, names in reasons.items()),
    ]


def _explain_stored_data(group: Group) -> list[str]:
    storing = [row.method for row in group.rows if row.stores_data]
    bounds = [row.method for row in group.rows if row.is_bound]
    unranked = "; bounds, never the best" if bounds == storing else ""
    return [f"{STORES_DATA}, counted as held: {', '.join(storing)}{unranked}."] if storing else []


def _mark_notes(notes: Sequence[str]) -> list[str]:
    """Return the notes with the mark of methods that store data before the one that explains it."""
    return [f"{MARK} {note}" if note.startswith(STORES_DATA) else note for note in notes]
