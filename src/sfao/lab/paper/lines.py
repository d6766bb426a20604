"""The lines of a reproduced table: for each row of the paper its numbers, ours, and the differences."""

from collections.abc import Callable
from dataclasses import dataclass

from sfao.lab.paper.cells import Cell
from sfao.lab.paper.reproduced_table import ReproducedTable, Row
from sfao.lab.report.tables import Column

DIGITS = {"accuracy": 1, "memory": 2, "projections": 0, "average_accuracy": 4, "psm": 4}
YES, NO = "✓", "✗"
PAPER = "paper"


@dataclass(frozen=True)
class Line:
    """One line of text: the name of the row where it begins, whose numbers they are, and {column: number}."""

    name: str
    kind: str
    numbers: dict[str, str]


NAME = Column[Line]("", lambda line: line.name)
KIND = Column[Line]("", lambda line: line.kind)


def number_columns(table: ReproducedTable) -> list[Column[Line]]:
    return [_number_column(title) for title in table.columns]


def _number_column(title: str) -> Column[Line]:
    return Column(title, lambda line: line.numbers[title], align="right")


def make_lines(table: ReproducedTable) -> list[Line]:
    """Return two or three lines per row of the table."""
    return [line for row in table.rows for line in _lines_of_row(table, row)]


def _lines_of_row(table: ReproducedTable, row: Row) -> list[Line]:
    digits = DIGITS[table.kind]
    paper = Line(row.name + _mark(table, row), PAPER, _texts(row, lambda cell: _format_paper(cell, digits)))
    if row.empty:
        return [paper, Line("", "no runs", _texts(row, lambda cell: ""))]
    uniform = len(row.counts) == 1
    count = f", n = {_count(row.counts[0], table.asked)}" if uniform else ""
    asked = None if uniform else table.asked
    lines = [paper, Line("", f"ours{count}", _texts(row, lambda cell: _format_ours(cell, digits, asked)))]
    if any(cell.difference is not None for cell in row.cells):
        lines.append(Line("", "difference", _texts(row, lambda cell: _format_difference(cell, digits))))
    return lines


def _texts(row: Row, text: Callable[[Cell], str]) -> dict[str, str]:
    return {cell.column: text(cell) for cell in row.cells}


def _mark(table: ReproducedTable, row: Row) -> str:
    """The number of the row's remark in brackets; empty without a remark."""
    return f" [{table.remarks.index(row.remark) + 1}]" if row.remark else ""


def _count(n: int, asked: int) -> str:
    return str(n) if n >= asked else f"{n} of {asked}"


def format_value(mean: float, std: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"


def _format_paper(cell: Cell, digits: int) -> str:
    return "" if cell.paper is None else format_value(cell.paper, cell.paper_std, digits)


def _format_ours(cell: Cell, digits: int, asked: int | None) -> str:
    """Our number, with its own number of seeds, of those `asked` for, where the row does not tell it."""
    if cell.ours is None:
        return ""
    std = None if cell.exact and not cell.ours.std else cell.ours.std
    text = format_value(cell.ours.mean, std, digits)
    return text if asked is None else f"{text} (n = {_count(cell.ours.n, asked)})"


def _format_difference(cell: Cell, digits: int) -> str:
    if cell.difference is None:
        return ""
    mark = {True: f" {YES}", False: f" {NO}", None: ""}[cell.agrees]
    return f"{cell.difference:+.{digits}f}{mark}"
