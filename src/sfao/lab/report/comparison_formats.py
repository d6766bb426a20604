"""A comparison as JSON, Markdown and LaTeX, and on a terminal."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sfao.lab.console import PlainConsole
from sfao.lab.report.comparison import Comparison, Group, Row
from sfao.lab.report.comparison_columns import INTERVAL, MARK, MARKED_METHOD, METHOD, drop_needless, text_columns
from sfao.lab.report.comparison_notes import STORES_DATA, WARNING, write_notes
from sfao.lab.tables import Column, Table
from sfao.lab.tables.latex import render_latex
from sfao.lab.tables.markdown import escape_text, render_markdown
from sfao.lab.tables.terminal import print_notes, render_terminal, split_columns

#: Columns of a terminal that leave room between those of the table.
SPACIOUS = 100


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return plain containers with numbers in full precision."""
    return {"groups": [asdict(group) for group in comparison.groups], "notice": comparison.notice}


def as_markdown(comparison: Comparison) -> str:
    """Return one table per group, with all columns."""
    notice = [escape_text(comparison.notice)] if comparison.notice else []
    tables = [render_markdown(_table(group, text_columns(group))) for group in comparison.groups]
    return "\n\n".join([*notice, *tables]) + "\n"


def as_latex(comparison: Comparison) -> str:
    """Return one table per group, without the interval so that it fits the width of a paper."""
    tables = []
    for number, group in enumerate(comparison.groups, start=1):
        columns = [column for column in _numbers(group) if column is not INTERVAL]
        table = _table(group, [MARKED_METHOD, *columns], f"{group.title}: mean and standard deviation over n seeds.")
        marked = replace(table, notes=_mark_notes(table.notes))
        tables.append(render_latex(marked, label=f"tab:comparison-{number}"))
    return "% \\usepackage{booktabs}\n" + "\n".join(tables)


def print_comparison(comparison: Comparison, console: PlainConsole) -> None:
    """Print one table per group; where the terminal is too narrow for it, in pieces, so that no number is cut."""
    if comparison.notice:
        console.print(comparison.notice, style="yellow")
    for group in comparison.groups:
        table = _table(group, _numbers(group))
        padding = int(console.width >= SPACIOUS)
        for number, piece in enumerate(split_columns(table, [MARKED_METHOD], console.width, gap=padding + 1)):
            shown = piece if number == 0 else replace(piece, title="")
            console.print(render_terminal(shown, padding=padding))
        print_notes(_mark_notes(table.notes), console, lambda note: "yellow" if note.startswith(WARNING) else "dim")


def _numbers(group: Group) -> list[Column[Row]]:
    """Return the columns beside the name of the method."""
    return [column for column in drop_needless(text_columns(group), group) if column is not METHOD]


def _mark_notes(notes: Sequence[str]) -> list[str]:
    """Return the notes with the mark of methods that store data before the one that explains it."""
    return [f"{MARK} {note}" if note.startswith(STORES_DATA) else note for note in notes]


def _table(group: Group, columns: Sequence[Column[Row]], title: str | None = None) -> Table[Row]:
    return Table(title or group.title, columns, group.rows, write_notes(group), is_apart=lambda row: row.is_bound)
