"""A table in a page: a reader sorts it by its headings, and scrolls it where the page is narrow."""

from markupsafe import Markup, escape

from sfao.lab.console import escape_controls
from sfao.lab.tables.model import Column, Row, Table


def render_html(table: Table[Row], classes: str = "sortable", file: str = "") -> Markup:
    """Return the table without its notes; the title is for people who cannot see it.

    `file` names the file, without an ending, that a page may offer it as.
    """
    title = _escape(table.title)
    offered = f' data-file="{escape(file)}"' if file else ""
    return Markup(
        f'<div class="scroll" role="region" aria-label="{title}" tabindex="0">\n'
        f'<table class="{escape(classes)}"{offered}>\n'
        f'<caption class="unseen">{title}</caption>\n'
        f"<thead><tr>\n{''.join(map(_render_heading, table.columns))}</tr></thead>\n"
        f"<tbody>\n{''.join(_row(table, row) for row in table.rows)}</tbody>\n"
        "</table>\n</div>\n"
    )


def _escape(text: str) -> Markup:
    return escape(escape_controls(text))


def _render_heading(column: Column[Row]) -> str:
    number = "" if column.value is None else ' class="number"'
    first = "descending" if column.descending else "ascending"
    return f'<th scope="col"{number} data-first="{first}">{_escape(column.title)}</th>\n'


def _row(table: Table[Row], row: Row) -> str:
    apart = ' class="apart"' if table.is_apart(row) else ""
    name, *others = table.columns
    cells = "".join(_cell(column, row) for column in others)
    traits = "".join(f' data-{name}="{_escape(value)}"' for name, value in table.traits(row).items())
    return f'<tr{apart}{traits}><th scope="row"><span class="name">{_escape(name.text(row))}</span></th>{cells}</tr>\n'


def _cell(column: Column[Row], row: Row) -> str:
    text = _escape(column.text(row))
    if column.is_best(row):
        text = Markup("<strong>{}</strong>").format(text)
    elif column.is_trouble(row):
        text = Markup('<span class="badge">{}</span>').format(text)
    elif column.value is None and text:
        text = Markup('<span class="name">{}</span>').format(text)
    if column.value is None:
        return f"<td>{text}</td>"
    value = column.value(row)
    return f'<td class="number" data-value="{"" if value is None else value}">{text}</td>'
