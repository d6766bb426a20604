import io
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from sfao.lab.console import PlainConsole, escape_controls, join_lines, quote, shorten, text_column

HOSTILE = "[bold]x[/bold] [/] :smile: \x1b[31m \x9b2J \u202e \udcff 3.5 http://x.org"
SHOWN = "[bold]x[/bold] [/] :smile: \\x1b[31m \\x9b2J \\u202e \\udcff 3.5 http://x.org"


@given(st.text())
def test_no_control_character_is_left_and_the_rest_stays(text):
    shown = escape_controls(text)
    assert not [letter for letter in shown if category(letter) in ("Cc", "Cs", "Zl", "Zp") and letter not in "\n\t"]
    assert escape_controls(shown) == shown
    if text.isprintable():
        assert shown == text
    joined = join_lines(text)
    assert len(joined.splitlines()) <= 1
    joined.encode()


@given(st.text(), st.integers(8, 50))
def test_a_long_text_keeps_its_ends(text, limit):
    short = shorten(text, limit)
    assert short == text if len(text) <= limit else len(short) == limit + 5
    assert short[: limit // 2] == text[: limit // 2]


def test_a_quoted_value_is_short():
    for value in ("x" * 10**6, 10**5000, [[1] * 10**4] * 10):
        assert len(quote(value)) < 200


@pytest.fixture
def console():
    return PlainConsole(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=200)


@pytest.mark.parametrize("printable", [HOSTILE, Text(HOSTILE), Path(HOSTILE.replace("//", "/"))])
def test_what_is_printed_is_text(printable, console):
    console.print(printable, markup=True, emoji=True)
    assert console.file.getvalue().replace("//", "/") == SHOWN.replace("//", "/") + "\n"


def test_tables_and_progress_bars_print_text(console):
    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE, no_wrap=True)
    table.add_row(HOSTILE)
    console.print(table)
    assert console.file.getvalue().count(SHOWN) == 4
    with Progress(text_column("{task.description}"), console=console) as bar:
        bar.add_task(HOSTILE)
    assert console.file.getvalue().count(SHOWN[:50]) > 4
    assert "\x1b[31m" not in console.file.getvalue()
