"""A reproduced table for people (rich, Markdown) and for scripts (JSON)."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sfao.experiment.statistics import Spread
from sfao.reproduction.cells import Cell
from sfao.reproduction.paper import stated_seeds
from sfao.reproduction.provenance import provenance
from sfao.reproduction.reproduced import AVERAGE, FORGETTING, Reproduced, Row

#: Letters between two columns on a terminal.
GAP = 2
UNITS = {
    "accuracy": "accuracy in % after the last task",
    "memory": "directions held, MB of 2^20 bytes",
    "projections": "directions stored at the end, each projected off at every batch",
    "average_accuracy": "average accuracy after the last task",
    "psm": "plasticity-stability measure",
}
DIGITS = {"accuracy": 1, "memory": 2, "projections": 0, "average_accuracy": 4, "psm": 4}
YES, NO = "✓", "✗"


def title(table: Reproduced) -> str:
    how = protocol_in_words(table.as_released)
    return f"Table {table.number}, {table.title}: {UNITS[table.kind]}; preset {table.preset}, {how}"


def protocol_in_words(as_released: bool) -> str:
    return "every row as the paper's was produced" if as_released else "one protocol for all rows"


def as_json(table: Reproduced) -> dict[str, Any]:
    """Plain containers, numbers in full precision."""
    values = asdict(table)
    for row, shown in zip(table.rows, values["rows"], strict=True):
        for cell, plain in zip(row.cells, shown["cells"], strict=True):
            for name in ("difference", "standard_error", "agrees", "in_range"):
                plain[name] = getattr(cell, name)
    return {"table": table.name, **values}


def as_markdown(table: Reproduced, heading: str = "##") -> str:
    head = ["", "", *table.columns]
    rule = "|---|---|" + "---:|" * len(table.columns)
    lines = [_markdown_row(line) for row in table.rows for line in _lines(table, row)]
    notes = [f"- {note}" for note in notes_of(table)]
    return "\n".join([f"{heading} {title(table)}", "", _markdown_row(head), rule, *lines, "", *notes]) + "\n"


def show(table: Reproduced, console: Console) -> None:
    console.print(title(table), style="bold", markup=False, highlight=False)
    for columns in _pieces(table, console.width):
        console.print(_piece(table, columns))
    for note in notes_of(table):
        style = "yellow" if note in table.caveats or note.startswith("Missing") else "dim"
        console.print(note, style=style, markup=False, highlight=False)


def _pieces(table: Reproduced, width: int) -> Iterator[range]:
    """The columns that fit side by side, so that no number is cut."""
    lines = [["", "", *table.columns], *(line for row in table.rows for line in _lines(table, row))]
    name, what, *widths = (max(map(len, column)) + GAP for column in zip(*lines, strict=True))
    start, used = 0, name + what
    for number, wide in enumerate(widths):
        if number > start and used + wide > width:
            yield range(start, number)
            start, used = number, name + what
        used += wide
    yield range(start, len(widths))


def _piece(table: Reproduced, columns: range) -> Table:
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    shown.add_column("", no_wrap=True)
    shown.add_column("", no_wrap=True)
    for number in columns:
        shown.add_column(table.columns[number], justify="right", no_wrap=True)
    for row in table.rows:
        for name, what, *cells in _lines(table, row):
            shown.add_row(name, what, *(cells[number] for number in columns), style=None if what == "paper" else "bold")
    return shown


def _lines(table: Reproduced, row: Row) -> list[list[str]]:
    """What the paper has, what we have, how far apart."""
    digits = DIGITS[table.kind]
    mark = f" [{_number(table, row)}]" if row.remark else ""
    paper = [_value(cell.paper, cell.paper_std, digits) for cell in row.cells]
    if row.empty:
        return [[row.name + mark, "paper", *paper], ["", "no runs", *("" for _ in row.cells)]]
    uniform = len(row.counts) == 1
    ours = [_ours(cell, digits, None if uniform else table.asked) for cell in row.cells]
    count = f", n = {_count(row.counts[0], table.asked)}" if uniform else ""
    lines = [[row.name + mark, "paper", *paper], ["", f"ours{count}", *ours]]
    if any(cell.difference is not None for cell in row.cells):
        lines.append(["", "difference", *(_difference(cell, digits) for cell in row.cells)])
    return lines


def _number(table: Reproduced, row: Row) -> int:
    """Which remark a row has, counted from 1 in the order of the table."""
    return _remarks(table).index(row.remark) + 1


def _remarks(table: Reproduced) -> list[str]:
    return list(dict.fromkeys(row.remark for row in table.rows if row.remark))


def _count(n: int, asked: int) -> str:
    return str(n) if n >= asked else f"{n} of {asked}"


def _value(mean: float | None, std: float | None, digits: int) -> str:
    if mean is None:
        return ""
    return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"


def _ours(cell: Cell, digits: int, asked: int | None) -> str:
    """With its own number of seeds, of those `asked` for, where the row does not tell it."""
    if cell.ours is None:
        return ""
    spread = None if cell.exact and not cell.ours.std else cell.ours.std
    text = _value(cell.ours.mean, spread, digits)
    return text if asked is None else f"{text} (n = {_count(cell.ours.n, asked)})"


def _difference(cell: Cell, digits: int) -> str:
    if cell.difference is None:
        return ""
    mark = {True: f" {YES}", False: f" {NO}", None: ""}[cell.agrees]
    return f"{cell.difference:+.{digits}f}{mark}"


def notes_of(table: Reproduced) -> list[str]:
    """What stands under a table."""
    lines = list(table.caveats)
    lines += [f"[{number}] {remark}." for number, remark in enumerate(_remarks(table), start=1)]
    lines += [line for row in table.rows if (line := _range(table, row))]
    lines += [_legend(table)]
    missing = _missing(table)
    if missing:
        lines.append(f"Missing, with no finished run: {'; '.join(missing)}.")
    troubled = {row.name: row.trouble for row in table.rows if row.trouble}
    lines += [f"{name}: {trouble}; their seeds are not in the numbers." for name, trouble in troubled.items()]
    if table.data:
        lines.append(f"Ours: {'; '.join(table.data)}; on {'; '.join(table.machines)}.")
        lines.append(f"Runs: {_runs(table)}.")
    if table.as_released:
        lines.append("The rows are of different scenarios, models or data, as the paper's are: not to be compared.")
    lines += [f"The paper's {row}: {source}" for row, source in table.sources.items()]
    return lines + _offer(table)


def _missing(table: Reproduced) -> list[str]:
    """Rows, and cells of rows that have others: OGD on Permuted MNIST (3)."""
    rows = dict.fromkeys(row.name for row in table.rows if row.empty)
    found = [", ".join(rows)] if rows else []
    for row in table.rows:
        columns = [cell.column for cell in row.cells if cell.paper is not None and cell.ours is None]
        if columns and not row.empty:
            found.append(f"{', '.join(columns)} on {row.name}")
    return list(dict.fromkeys(found))


def _offer(table: Reproduced) -> list[str]:
    """How to run the rows of the paper that are of another protocol as they were produced."""
    other = [row for row in table.sources if provenance(table.number, row).settings]
    if table.as_released or not other:
        return []
    command = f"sfao reproduce {table.name} --as-released"
    return [f"Of another protocol in the paper: {', '.join(other)}; `{command}` follows it."]


def _legend(table: Reproduced) -> str:
    if table.kind in ("memory", "projections"):
        return f"{YES} is equal to what is printed, {NO} is not."
    if table.kind in ("average_accuracy", "psm"):
        return (
            f"Ours: mean ± standard deviation over seeds. {YES}: the paper's number, of one run, is within two "
            f"standard deviations of our mean; {NO}: it is not."
        )
    return (
        f"Mean ± standard deviation over seeds. {YES}: the difference is within two standard errors, of the paper's "
        f"{stated_seeds()} seeds and ours together, or too small to be printed; {NO}: it is not. Of its {AVERAGE} the "
        f"paper prints no spread. {FORGETTING}: forgetting; the paper's is what table 11 implies."
    )


def _range(table: Reproduced, row: Row) -> str:
    """Of a single run of the paper among tables 1 to 7: is it one that ours could have been?"""
    if table.kind != "accuracy":
        return ""
    told = [_single(cell, cell.ours) for cell in row.cells if cell.single and cell.ours]
    return f"The released single run: {'; '.join(told)}." if told else ""


def _single(cell: Cell, ours: Spread) -> str:
    if cell.agrees is None:
        return f"{cell.column} {cell.paper:.2f}, ours {ours.mean:.2f}, n = {ours.n}: one seed has no spread"
    inside = {True: "inside", False: "outside"}
    return (
        f"{cell.column} {cell.paper:.2f} is {inside[cell.agrees]} mean ± 2 std ({_value(ours.mean, ours.std, 2)}) and "
        f"{inside[bool(cell.in_range)]} min to max ({cell.lowest:.2f} to {cell.highest:.2f}), n = {ours.n}"
    )


def _runs(table: Reproduced) -> str:
    """By folder: split-mnist: sgd, ewc; split-cifar10: sgd."""
    places: dict[str, dict[str, None]] = {}
    for run in (run for row in table.rows if not row.empty for run in row.runs):
        place, _, name = run.partition("/")
        places.setdefault(place, {})[name] = None
    return "; ".join(f"{place}: {', '.join(names)}" for place, names in places.items())


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
