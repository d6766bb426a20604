"""Tables: columns that know what to show of a row, rendered for a terminal, Markdown and LaTeX."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from rich import table as rich_table
from rich.box import SIMPLE_HEAD
from rich.text import Text

from sfao.lab.console import PlainConsole, escape_controls, join_lines

Row = TypeVar("Row")

#: Columns of a terminal that leave room between those of the table.
SPACIOUS = 100
#: Starts a note that the reader must not miss.
WARNING = "warning"
#: Letters that a column which may take several lines is given at most.
WRAPPED = 24


def never(row: Any) -> bool:
    return False


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A title, and the text under it for each row."""

    title: str
    text: Callable[[Row], str]
    is_best: Callable[[Row], bool] = never
    align: Literal["left", "right"] = "left"
    #: True if the text may take several lines where a terminal is narrow.
    wraps: bool = False


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Columns and rows, with notes under them. Rows for which `is_apart` is true are shown but not ranked."""

    title: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    is_apart: Callable[[Row], bool] = never


def best_among(
    rows: Sequence[Row], value: Callable[[Row], float], choose: Callable[[Sequence[float]], float]
) -> Callable[[Row], bool]:
    """Return the predicate of the rows whose value `choose` (max or min) picks; of none where all values are equal."""
    values = [value(row) for row in rows]
    if len(set(values)) < 2:
        return never
    best = choose(values)
    winners = [row for row, own in zip(rows, values, strict=True) if own == best]
    return lambda row: row in winners


# -- Terminal --------------------------------------------------------------------------------------------------------


def print_table(table: Table[Row], console: PlainConsole, repeated: int = 1) -> None:
    """Print the table and its notes; warnings stand out, rows that are apart are dim.

    A table that is too wide is printed in pieces, each after the `repeated` first columns, so that no number is cut.
    """
    padding = int(console.width >= SPACIOUS)
    for number, piece in enumerate(split_columns(table, repeated, console.width, gap=padding + 1)):
        console.print(render_terminal(piece if number == 0 else replace(piece, title=""), padding))
    for note in table.notes:
        console.print(note, style="yellow" if note.startswith(WARNING) else "dim")


def render_terminal(table: Table[Row], padding: int = 1) -> rich_table.Table:
    """Return the table without its notes; rows that are apart are dim."""
    shown = rich_table.Table(
        title=table.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, padding, 0, 0), show_edge=False
    )
    for column in table.columns:
        shown.add_column(column.title, justify=column.align, no_wrap=not column.wraps)
    for row in table.rows:
        texts = [(escape_controls(column.text(row)), "bold" if column.is_best(row) else "") for column in table.columns]
        shown.add_row(*map(Text.assemble, texts), style="dim" if table.is_apart(row) else "")
    return shown


def split_columns(table: Table[Row], repeated: int, width: int, gap: int = 2) -> Iterator[Table[Row]]:
    """Yield tables of as many columns as fit side by side, each after the `repeated` first ones."""
    first, start = (
        table.columns[:repeated],
        sum(_width(column, table.rows) + gap for column in table.columns[:repeated]),
    )
    piece, used = list[Column[Row]](), start
    for column in table.columns[repeated:]:
        wide = _width(column, table.rows) + gap
        if piece and used + wide > width:
            yield replace(table, columns=[*first, *piece])
            piece, used = [], start
        piece.append(column)
        used += wide
    yield replace(table, columns=[*first, *piece])


def _width(column: Column[Row], rows: Sequence[Row]) -> int:
    widest = max(len(text) for text in (column.title, *map(column.text, rows)))
    return min(widest, WRAPPED) if column.wraps else widest


# -- Markdown --------------------------------------------------------------------------------------------------------


def render_markdown(table: Table[Row], heading: str = "##") -> str:
    """Return the title as a heading, the table, and the notes as a list."""
    notes = (f"- {escape_text(note)}" for note in table.notes)
    return "\n".join([f"{heading} {escape_text(table.title)}", "", render_grid(table), "", *notes])


def render_grid(table: Table[Row]) -> str:
    """Return the table alone; the best of a column is bold, rows that are apart are in italics."""
    rule = "|" + "".join({"left": "---|", "right": "---:|"}[column.align] for column in table.columns)
    lines = [_cells(table, row, escape_markdown, "**{}**", "*{}*") for row in table.rows]
    titles = [escape_markdown(column.title) for column in table.columns]
    head, *body = (f"| {' | '.join(cells)} |" for cells in [titles, *lines])
    return "\n".join([head, rule, *body])


def escape_markdown(text: str) -> str:
    """Return text that does not end the cell it stands in."""
    return escape_text(text).replace("|", "\\|")


def escape_text(text: str) -> str:
    """Return text on one line that is no HTML, no link and no picture, without control characters."""
    text = re.sub(r"&(?=#|\w+;)", "&amp;", join_lines(text))
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text).replace("](", "]\\(")


# -- LaTeX -----------------------------------------------------------------------------------------------------------

_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    **{letter: f"${letter}$" for letter in "<>|"},
    "±": r"$\pm$",
}


def render_latex(table: Table[Row], label: str) -> str:
    """Return a booktabs table; the caption is the title and the notes, best cells are bold, rows apart slanted."""
    lines = [_cells(table, row, escape_latex, r"\textbf{{{}}}", r"\textit{{{}}}") for row in table.rows]
    titles = [escape_latex(column.title) for column in table.columns]
    head, *body = (f"    {' & '.join(cells)} \\\\" for cells in [titles, *lines])
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{' '.join(map(escape_latex, (table.title, *table.notes)))}}}",
            f"  \\label{{{label}}}",
            r"  \smallskip",
            r"  \small\setlength{\tabcolsep}{4pt}",  # so that it fits the text of an article
            f"  \\begin{{tabular}}{{@{{}}{''.join(column.align[0] for column in table.columns)}@{{}}}}",
            r"    \toprule",
            head,
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape_latex(text: str) -> str:
    """Return text that LaTeX sets as it is written, on one line and without control characters."""
    return "".join(_SPECIAL.get(letter, letter) for letter in join_lines(text))


def _cells(table: Table[Row], row: Row, escaped: Callable[[str], str], best: str, apart: str) -> Iterable[str]:
    """Yield the cells of a row; `best` and `apart` are formats around their text."""
    for column in table.columns:
        text = escaped(column.text(row))
        text = best.format(text) if column.is_best(row) else text
        yield apart.format(text) if text and table.is_apart(row) else text
