"""A table on a terminal, drawn by rich."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich import table as rich_table
from rich.box import SIMPLE_HEAD
from rich.console import OverflowMethod
from rich.text import Text

from sfao.lab.console import PlainConsole, escape_controls
from sfao.lab.tables.model import Column, Row, Table

#: Letters between two columns: the padding of a cell, and one of the box.
GAP = 2
#: Letters that a column which may take several lines is given at most.
WRAPPED = 24


def render_terminal(
    table: Table[Row],
    *,
    padding: int = 1,
    overflow: OverflowMethod = "ellipsis",
    row_style: Callable[[Row], str] | None = None,
) -> rich_table.Table:
    """Return the table without its notes; rows that are apart are dim unless `row_style` says otherwise.

    `overflow` is what becomes of text that has no room.
    """
    style_of = row_style or (lambda row: "dim" if table.is_apart(row) else "")
    shown = rich_table.Table(
        title=table.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, padding, 0, 0), show_edge=False
    )
    for column in table.columns:
        shown.add_column(column.title, justify=column.align, no_wrap=not column.wraps, overflow=overflow)
    for row in table.rows:
        shown.add_row(*(_cell(column, row) for column in table.columns), style=style_of(row))
    return shown


def _cell(column: Column[Row], row: Row) -> Text:
    """The text as it is: square brackets are no markup."""
    text = Text(escape_controls(column.text(row)))
    if column.is_best(row):
        text.stylize("bold")
    return text


def print_notes(
    notes: Sequence[str], console: PlainConsole, style_of: Callable[[str], str] = lambda note: "dim"
) -> None:
    """Print the notes under a table, one per line."""
    for note in notes:
        console.print(note, style=style_of(note))


def split_columns(
    table: Table[Row], repeated: Sequence[Column[Row]], width: int, gap: int = GAP
) -> Iterator[Table[Row]]:
    """Yield tables of as many columns as fit side by side, each after the `repeated` ones, so that nothing is cut.

    `gap` is the room between two columns.
    """
    start = sum(_width(column, table.rows) + gap for column in repeated)
    piece, used = list[Column[Row]](), start
    for column in table.columns:
        wide = _width(column, table.rows) + gap
        if piece and used + wide > width:
            yield replace(table, columns=[*repeated, *piece])
            piece, used = [], start
        piece.append(column)
        used += wide
    yield replace(table, columns=[*repeated, *piece])


def _width(column: Column[Row], rows: Sequence[Row]) -> int:
    widest = max(len(text) for text in (column.title, *map(column.text, rows)))
    return min(widest, WRAPPED) if column.wraps else widest
