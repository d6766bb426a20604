import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.report.tables import escape_markdown, render_grid, render_markdown
from tests.lab.tables.runners import NAME, Runner, race


def test_a_table_is_a_heading_rows_and_a_list_of_notes():
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


def test_without_notes_it_ends_with_an_empty_line():
    assert render_markdown(race(notes=())).endswith("| *car* | *2.0* |  |\n")


@pytest.mark.parametrize("name", ["a|b", "|", "||x||"])
def test_a_bar_in_a_cell_or_a_title_ends_no_cell(name):
    column = type(NAME)(name, lambda runner: runner.name)
    head, _, row = render_grid(race([Runner(name, 1.0)], columns=[column])).splitlines()
    assert head == row == f"| {escape_markdown(name)} |"


@given(st.text(alphabet="ab| *", max_size=20))
def test_as_many_cells_as_columns_whatever_the_names(name):
    for line in render_grid(race([Runner(name, 1.0)])).splitlines():
        assert line.replace("\\|", "").count("|") == 4


@given(st.text(alphabet="ab<>&#;![]()/\x1b\n\u202e\ud800| x1", max_size=30))
def test_no_html_link_picture_or_control_comes_from_a_name(name):
    written = render_markdown(race([Runner(name, 1.0)], title=name, notes=[name]))
    assert not re.search(r"<[A-Za-z/!?]|&#|\]\(", written)
    assert not {"\x1b", "\u202e", "\ud800"} & set(written)
    assert len(written.splitlines()) == 7


def test_a_comparison_stays_readable():
    assert escape_markdown("p <0.0001 & [1, 2] <b>") == "p <0.0001 & [1, 2] &lt;b>"
