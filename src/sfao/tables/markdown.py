"""A table in Markdown."""

from collections.abc import Iterable

from sfao.tables.model import Column, Row, Table

RULES = {"left": "---", "right": "---:"}


def render_markdown(table: Table[Row], heading: str = "##") -> str:
    """Return the title as a heading, the table, and the notes as a list."""
    return "\n".join([f"{heading} {table.title}", "", render_grid(table), "", *(f"- {note}" for note in table.notes)])


def render_grid(table: Table[Row]) -> str:
    """Return the table alone; the best of a column is bold, rows that are apart are in italics."""
    rule = "|" + "".join(f"{RULES[column.align]}|" for column in table.columns)
    rows = (_line(_cell(table, column, row) for column in table.columns) for row in table.rows)
    return "\n".join([_line(escape_markdown(column.title) for column in table.columns), rule, *rows])


def escape_markdown(text: str) -> str:
    """Return text that does not end the cell it stands in."""
    return text.replace("|", "\\|")


def _cell(table: Table[Row], column: Column[Row], row: Row) -> str:
    text = escape_markdown(column.text(row))
    if column.is_best(row):
        text = f"**{text}**"
    return f"*{text}*" if text and table.is_apart(row) else text


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
