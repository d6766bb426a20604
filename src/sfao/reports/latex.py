"""A comparison as tables for a paper, in the form of the booktabs package."""

from sfao.reports.comparison import Comparison, Group
from sfao.reports.comparison_views import HEADINGS, cells, notes

#: Columns of the table in a paper's width: not the interval, and what went wrong only where anything did.
COLUMNS = (0, 1, 2, 4, 5, 6, 7)
TROUBLE = HEADINGS.index("notes")

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


def as_latex(comparison: Comparison) -> str:
    """One table a group."""
    tables = [_table(group, number) for number, group in enumerate(comparison.groups, start=1)]
    return "% \\usepackage{booktabs}\n" + "\n".join(tables)


def escaped(text: str) -> str:
    """Text that LaTeX sets as it is written, on one line."""
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _table(group: Group, number: int) -> str:
    columns = [*COLUMNS, *([TROUBLE] if any(row.trouble for row in group.rows) else [])]
    rows = cells(group, r"\textbf{{{}}}".format, r"\textit{{{}}}".format, escaped)
    caption = [f"{group.title}: mean and standard deviation over n seeds, the best in bold.", *notes(group)]
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{' '.join(map(escaped, caption))}}}",
        f"  \\label{{tab:comparison-{number}}}",
        r"  \smallskip",
        r"  \setlength{\tabcolsep}{4pt}",  # so that it fits the text of an article
        f"  \\begin{{tabular}}{{@{{}}{''.join('l' if column in (0, TROUBLE) else 'r' for column in columns)}@{{}}}}",
        r"    \toprule",
        _row([escaped(HEADINGS[column]) for column in columns]),
        r"    \midrule",
        *(_row([row[column] for column in columns]) for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _row(texts: list[str]) -> str:
    return f"    {' & '.join(texts)} \\\\"
