"""A table on a terminal, in Markdown and LaTeX."""

import re
from dataclasses import dataclass
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.console import PlainConsole
from sfao.lab.report.tables import (
    Column,
    Table,
    best_among,
    escape_latex,
    print_table,
    render_grid,
    render_latex,
    render_markdown,
    render_terminal,
    split_columns,
)


@dataclass(frozen=True)
class Runner:
    name: str
    seconds: float | None
    remark: str = ""
    is_guest: bool = False


RUNNERS = [Runner("ann", 9.5), Runner("bob", 11.25, "fell"), Runner("eve", None), Runner("car", 2.0, is_guest=True)]
NAME = Column[Runner]("name", lambda runner: runner.name)
SECONDS = Column[Runner](
    "seconds",
    lambda runner: "" if runner.seconds is None else f"{runner.seconds:.1f}",
    is_best=lambda runner: runner.name == "ann",
    align="right",
)
REMARK = Column[Runner]("remark", lambda runner: runner.remark)


def race(rows=RUNNERS, columns=(NAME, SECONDS, REMARK), title="A race", notes=("Dry track.",)):
    return Table(title, columns, rows, notes, is_apart=lambda runner: runner.is_guest)


@pytest.mark.parametrize(("choose", "best"), [(max, ["c", "d"]), (min, ["a"])])
def test_all_rows_that_share_the_best_value_are_best(choose, best):
    values = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 3.0}
    is_best = best_among(list(values), values.__getitem__, choose)
    assert [row for row in values if is_best(row)] == best
    assert not best_among(["a", "b"], lambda row: 1.0, choose)("a")  # all are equal
    assert not is_best("e")


# -- Terminal --------------------------------------------------------------------------------------------------------


def lines(table, width=80, color=False, **options):
    console = PlainConsole(
        file=StringIO(), width=width, force_terminal=color, color_system="standard" if color else None
    )
    console.print(render_terminal(table, **options))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_terminal_shows_title_headings_and_rows_but_not_notes():
    assert lines(race()) == [
        "A race",
        "name  seconds  remark",
        "──────────────────────",
        "ann       9.5",
        "bob      11.2  fell",
        "eve",
        "car       2.0",
    ]
    styled = lines(race(), color=True)
    assert "\x1b[1m9.5\x1b[0m" in next(line for line in styled if "ann" in line)
    assert next(line for line in styled if "car" in line).startswith("\x1b[2m")
    assert "\x1b" not in next(line for line in styled if "bob" in line)


def test_brackets_are_text_on_a_terminal():
    column = Column[Runner]("[bold]", lambda runner: runner.name)
    shown = lines(race([Runner("[red]x[/red]", 1.0)], columns=[column], title="[i]race[/i]"))
    assert (shown[1], shown[3]) == ("[bold]", "[red]x[/red]")
    console = PlainConsole(file=StringIO(), width=80)
    print_table(race(notes=["[1] plain"]), console)
    assert console.file.getvalue().endswith("\n[1] plain\n")


@pytest.mark.parametrize("width", [20, 30, 44])
def test_a_wide_name_wraps_where_its_column_may_and_the_numbers_stay_whole(width):
    wide = Runner("a name of many words that needs more than a line", 123.456)
    wrapping = Column[Runner]("name", lambda runner: runner.name, wraps=True)
    shown = lines(race([wide], columns=[wrapping, SECONDS], title=""), width=width)
    assert all(len(line) <= width for line in shown)
    assert "123.5" in "".join(shown)
    words = [word for line in shown[2:] for word in line.split() if word != "123.5"]
    assert " ".join(words) == wide.name


@pytest.mark.parametrize(("width", "count"), [(1, 6), (15, 6), (24, 3), (40, 2), (80, 1)])
def test_columns_are_split_into_pieces_that_fit(width, count):
    numbers = [Column[Runner](f"n{number}", lambda runner: "12345.6", align="right") for number in range(6)]
    pieces = list(split_columns(race(columns=[NAME, *numbers], title=""), 1, width))
    assert [column for piece in pieces for column in piece.columns[1:]] == numbers
    assert all(piece.columns[0] is NAME for piece in pieces)
    assert len(pieces) == count
    if width > 1:
        assert all(len(line) <= width for piece in pieces for line in lines(piece, width=200))


# -- Markdown, LaTeX -------------------------------------------------------------------------------------------


def test_markdown_is_a_heading_rows_and_a_list_of_notes():
    assert render_markdown(race(), "###").splitlines() == [
        "### A race",
        "",
        "| name | seconds | remark |",
        "|---|---:|---|",
        "| ann | **9.5** |  |",
        "| bob | 11.2 | fell |",
        "| eve |  |  |",
        "| *car* | *2.0* |  |",
        "",
        "- Dry track.",
    ]


@given(st.text(alphabet="ab<>&#;![]()/|*\x1b\n\u202e\ud800 x1", max_size=30))
def test_markdown_has_its_cells_and_no_html_link_or_control_whatever_the_names(name):
    written = render_markdown(race([Runner(name, 1.0)], title=name, notes=[name]))
    assert not re.search(r"<[A-Za-z/!?]|&#|\]\(", written)
    assert not {"\x1b", "\u202e", "\ud800"} & set(written)
    assert len(written.splitlines()) == 7
    for line in render_grid(race([Runner(name, 1.0)])).splitlines():
        assert line.replace("\\|", "").count("|") == 4


def test_latex_has_columns_rows_caption_and_label():
    assert render_latex(
        race([*RUNNERS[:1], RUNNERS[3], Runner("a_b", 1.0)], title="50 %"), "tab:race"
    ).splitlines() == [
        r"\begin{table}",
        r"  \centering",
        r"  \caption{50 \% Dry track.}",
        r"  \label{tab:race}",
        r"  \smallskip",
        r"  \small\setlength{\tabcolsep}{4pt}",
        r"  \begin{tabular}{@{}lrl@{}}",
        r"    \toprule",
        r"    name & seconds & remark \\",
        r"    \midrule",
        r"    ann & \textbf{9.5} &  \\",
        r"    \textit{car} & \textit{2.0} &  \\",
        r"    a\_b & 1.0 &  \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


@given(st.text(max_size=40))
def test_latex_is_escaped(text):
    left = escape_latex(text)
    words = (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}", r"\textasciigrave{}")
    for known in (*words, "$<$", "$>$", "$|$", r"$\pm$"):
        left = left.replace(known, "")
    left = re.sub(r"\\[&%$#_{}]", "", left)
    assert not set(left) & set("\\&%$#_{}~^`<>|\n")
