"""A reproduced table as JSON and Markdown, and on a terminal."""

from dataclasses import asdict
from typing import Any

from sfao.lab.console import PlainConsole
from sfao.lab.paper.lines import KIND, NAME, PAPER, Line, make_lines, number_columns
from sfao.lab.paper.notes import is_warning, write_notes
from sfao.lab.paper.reproduced_table import ReproducedTable
from sfao.lab.report.tables import Table, print_notes, render_markdown, render_terminal, split_columns

UNITS = {
    "accuracy": "accuracy in % after the last task",
    "memory": "directions held, MB of 2^20 bytes",
    "projections": "directions stored at the end, each projected off at every batch",
    "average_accuracy": "average accuracy after the last task",
    "psm": "plasticity-stability measure",
}


def as_json(table: ReproducedTable) -> dict[str, Any]:
    """Return plain containers with numbers in full precision."""
    values = asdict(table)
    for row, shown in zip(table.rows, values["rows"], strict=True):
        for cell, plain in zip(row.cells, shown["cells"], strict=True):
            for name in ("difference", "standard_error", "agrees", "in_range"):
                plain[name] = getattr(cell, name)
    return {"table": table.name, **values}


def as_markdown(table: ReproducedTable, heading: str = "##") -> str:
    shown = Table(_title(table), [NAME, KIND, *number_columns(table)], make_lines(table), write_notes(table))
    return render_markdown(shown, heading) + "\n"


def print_reproduction(table: ReproducedTable, console: PlainConsole) -> None:
    """Print the table in pieces that fit the terminal, so that no number is cut."""
    console.print(_title(table), style="bold")
    numbers = Table("", number_columns(table), make_lines(table))
    for piece in split_columns(numbers, [NAME, KIND], console.width):
        console.print(render_terminal(piece, row_style=_row_style))
    print_notes(write_notes(table), console, lambda note: "yellow" if is_warning(note, table) else "dim")


def _row_style(line: Line) -> str:
    return "" if line.kind == PAPER else "bold"


def _title(table: ReproducedTable) -> str:
    how = describe_protocol(table.as_released)
    return f"Table {table.number}, {table.title}: {UNITS[table.kind]}; preset {table.preset}, {how}"


def describe_protocol(as_released: bool) -> str:
    return "every row as the paper's was produced" if as_released else "one protocol for all rows"
