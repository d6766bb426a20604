import io
from pathlib import Path

import pytest
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from sfao.lab.outside_text.screen import Screen, make_text_column

HOSTILE = "[bold]x[/bold] [/] :smile: \x1b[31m \x9b2J \u202e \udcff 3.5 http://x.org"
SHOWN = "[bold]x[/bold] [/] :smile: \\x1b[31m \\x9b2J \\u202e \\udcff 3.5 http://x.org"


def terminal() -> Screen:
    return Screen(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=200)


def printed(screen: Screen) -> str:
    return screen.file.getvalue()


@pytest.mark.parametrize("printable", [HOSTILE, Text(HOSTILE), Path(HOSTILE.replace("//", "/"))])
def test_what_is_printed_is_text(printable):
    screen = terminal()
    screen.print(printable, markup=True, emoji=True)
    assert printed(screen).replace("//", "/") == SHOWN.replace("//", "/") + "\n"


def test_in_tables_too_whose_columns_are_as_wide_as_what_is_shown():
    screen, table = terminal(), Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE, no_wrap=True)
    table.add_row(HOSTILE)
    screen.print(table)
    assert printed(screen).count(SHOWN) == 4


def test_beside_bars_and_while_waiting():
    screen = terminal()
    with Progress(make_text_column("{task.description}"), console=screen) as bar:
        bar.add_task(HOSTILE)
    status = screen.status(HOSTILE)
    status.update(HOSTILE)
    screen.print(status.renderable)
    assert SHOWN in printed(screen)
    assert "\x1b[31m" not in printed(screen)
    assert "[bold]x[/bold]" in printed(screen)


def test_a_style_is_given_beside_the_text():
    screen = terminal()
    screen.print("a", style="red")
    assert printed(screen) == "\x1b[31ma\x1b[0m\n"
