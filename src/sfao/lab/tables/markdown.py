"""A table in Markdown."""

import re
from collections.abc import Iterable

from sfao.lab.console import join_lines
from sfao.lab.tables.model import Column, Row, Table

RULES = {"left": "---", "right": "---:"}


def render_markdown(table: Table[Row], heading: str = "##") -> str:
    """Return the title as a heading, the table, and the notes as a list."""
    notes = (f"- {escape_text(note)}" for note in table.notes)
    return "\n".join([f"{heading} {escape_text(table.title)}", "", render_grid(table), "", *notes])


def render_grid(table: Table[Row]) -> str:
    """Return the table alone; the best of a column is bold, rows that are apart are in italics."""
    rule = "|" + "".join(f"{RULES[column.align]}|" for column in table.columns)
    rows = (_line(_cell(table, column, row) for column in table.columns) for row in table.rows)
    return "\n".join([_line(escape_markdown(column.title) for column in table.columns), rule, *rows])


def escape_markdown(text: str) -> str:
    """Return text that does not end the cell it stands in."""
    return escape_text(text).replace("|", "\\|")


def escape_text(text: str) -> str:
    """Return text on one line that is no HTML, no link and no picture, without control characters."""
    text = re.sub(r"&(?=#|\w+;)", "&amp;", join_lines(text))
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text).replace("](", "]\\(")


def _cell(table: Table[Row], column: Column[Row], row: Row) -> str:
    text = escape_markdown(column.text(row))
    if column.is_best(row):
        text = f"**{text}**"
    return f"*{text}*" if text and table.is_apart(row) else text


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
