from io import StringIO

import pytest

from sfao.lab.console import PlainConsole
from sfao.lab.report.tables import Column, print_notes, render_terminal, split_columns
from tests.lab.tables.runners import NAME, REMARK, SECONDS, Runner, race


def lines(table, width=80, colour=False, **options):
    console = PlainConsole(
        file=StringIO(), width=width, force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(render_terminal(table, **options))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_table_has_its_title_headings_and_rows_but_not_its_notes():
    assert lines(race()) == [
        "A race",
        "name  seconds  remark",
        "──────────────────────",
        "ann       9.5",
        "bob      11.2  fell",
        "eve",
        "car       2.0",
    ]


def test_the_best_is_bold_and_a_row_apart_is_dim():
    shown = lines(race(), colour=True)
    assert "\x1b[1m9.5\x1b[0m" in next(line for line in shown if "ann" in line)
    assert next(line for line in shown if "car" in line).startswith("\x1b[2m")
    assert "\x1b" not in next(line for line in shown if "bob" in line)


def test_rows_may_have_a_style_of_their_own():
    styled = lines(race(), colour=True, row_style=lambda runner: "bold" if runner.name == "bob" else "")
    assert next(line for line in styled if "bob" in line).startswith("\x1b[1m")
    assert "\x1b" not in next(line for line in styled if "car" in line)


def test_brackets_are_text_in_titles_headings_and_cells():
    column = Column[Runner]("[bold]", lambda runner: runner.name)
    shown = lines(race([Runner("[red]x[/red]", 1.0)], columns=[column], title="[i]race[/i]"))
    assert (shown[1], shown[3]) == ("[bold]", "[red]x[/red]")
    assert "".join(lines(race(title="[i]race[/i]"))).startswith("[i]race[/i]")


@pytest.mark.parametrize("width", [20, 30, 44])
def test_a_wide_name_wraps_where_its_column_may_and_the_numbers_stay_whole(width):
    wide = Runner("a name of many words that needs more than a line", 123.456)
    wrapping = Column[Runner]("name", lambda runner: runner.name, wraps=True)
    shown = lines(race([wide], columns=[wrapping, SECONDS], title=""), width=width)
    assert all(len(line) <= width for line in shown)
    assert "123.5" in "".join(shown)
    words = [word for line in shown[2:] for word in line.split() if word != "123.5"]
    assert " ".join(words) == wide.name


def test_a_wide_name_is_cut_where_its_column_may_not_wrap():
    (_, _, row) = lines(race([Runner("x" * 99, 1.0)], columns=[NAME, SECONDS], title=""), width=40)
    assert len(row) <= 40
    assert "…" in row


@pytest.mark.parametrize("width", [15, 24, 40, 80])
def test_columns_are_split_into_pieces_that_fit(width):
    numbers = [Column[Runner](f"n{count}", lambda runner: "12345.6", align="right") for count in range(6)]
    pieces = list(split_columns(race(columns=numbers, title=""), [NAME], width))
    assert [column for piece in pieces for column in piece.columns[1:]] == numbers
    assert all(piece.columns[0] is NAME for piece in pieces)
    for piece in pieces:
        assert len(piece.columns) > 1
        if len(piece.columns) > 2:
            assert all(len(line) <= width for line in lines(piece, width=200))
    assert len(pieces) == {15: 6, 24: 3, 40: 2, 80: 1}[width]


def test_a_column_wider_than_the_terminal_still_has_a_piece():
    assert [len(piece.columns) for piece in split_columns(race(columns=[REMARK]), [NAME], 1)] == [2]


def test_notes_are_printed_as_they_are_each_in_its_style():
    console = PlainConsole(file=StringIO(), force_terminal=True, color_system="standard", width=80)
    print_notes(["[1] plain", "beware"], console, lambda note: "yellow" if note == "beware" else "dim")
    assert console.file.getvalue().splitlines() == ["\x1b[2m[1] plain\x1b[0m", "\x1b[33mbeware\x1b[0m"]
