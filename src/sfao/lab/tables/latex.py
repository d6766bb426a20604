"""A table for a paper, in the form of the booktabs package."""

from collections.abc import Iterable

from sfao.lab.console import join_lines
from sfao.lab.tables.model import Column, Row, Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
}


def render_latex(table: Table[Row], label: str) -> str:
    """Return a table environment; the caption is the title and the notes, best cells are bold, rows apart slanted."""
    caption = " ".join(map(escape_latex, (table.title, *table.notes)))
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{caption}}}",
        f"  \\label{{{label}}}",
        r"  \smallskip",
        r"  \small\setlength{\tabcolsep}{4pt}",  # so that it fits the text of an article
        f"  \\begin{{tabular}}{{@{{}}{''.join(column.align[0] for column in table.columns)}@{{}}}}",
        r"    \toprule",
        _line(escape_latex(column.title) for column in table.columns),
        r"    \midrule",
        *(_line(_cell(table, column, row) for column in table.columns) for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escape_latex(text: str) -> str:
    """Return text that LaTeX sets as it is written, on one line and without control characters."""
    return "".join(_SPECIAL.get(letter, letter) for letter in join_lines(text))


def _cell(table: Table[Row], column: Column[Row], row: Row) -> str:
    text = escape_latex(column.text(row))
    if column.is_best(row):
        text = rf"\textbf{{{text}}}"
    return rf"\textit{{{text}}}" if text and table.is_apart(row) else text


def _line(cells: Iterable[str]) -> str:
    return f"    {' & '.join(cells)} \\\\"
