from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from sfao.lab.tables.html import render_html
from tests.lab.tables.runners import NAME, Runner, race


class Reader(HTMLParser):
    """(tag, attributes) of every element, and all text."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_a_table_in_full():
    html = render_html(race(), "sortable dense")
    assert isinstance(html, Markup)
    assert html.splitlines() == [
        '<div class="scroll" role="region" aria-label="A race" tabindex="0">',
        '<table class="sortable dense">',
        '<caption class="unseen">A race</caption>',
        "<thead><tr>",
        '<th scope="col" data-first="ascending">name</th>',
        '<th scope="col" class="number" data-first="ascending">seconds</th>',
        '<th scope="col" data-first="ascending">remark</th>',
        "</tr></thead>",
        "<tbody>",
        '<tr><th scope="row"><span class="name">ann</span></th>'
        '<td class="number" data-value="9.5"><strong>9.5</strong></td><td></td></tr>',
        '<tr><th scope="row"><span class="name">bob</span></th>'
        '<td class="number" data-value="11.25">11.2</td><td><span class="badge">fell</span></td></tr>',
        '<tr><th scope="row"><span class="name">eve</span></th><td class="number" data-value=""></td><td></td></tr>',
        '<tr class="apart"><th scope="row"><span class="name">car</span></th>'
        '<td class="number" data-value="2.0">2.0</td><td></td></tr>',
        "</tbody>",
        "</table>",
        "</div>",
    ]


def test_a_column_may_sort_with_the_largest_on_top():
    column = type(NAME)("points", lambda runner: "1", lambda runner: 1.0, descending=True)
    assert '<th scope="col" class="number" data-first="descending">points</th>' in render_html(race(columns=[column]))


@given(st.text(alphabet="a<>&'\"/{}", min_size=1, max_size=20))
def test_whatever_a_name_holds_is_text(name):
    column = type(NAME)(name, lambda runner: runner.name)
    rows = [Runner(name, 1.0, name)]
    read = Reader(render_html(race(rows, columns=[column, *race().columns], title=name)))
    plain = Reader(render_html(race([Runner("a", 1.0, "a")], columns=[column, *race().columns], title="a")))
    assert [tag for tag, _ in read.elements] == [tag for tag, _ in plain.elements]
    assert read.elements[0][1]["aria-label"] == name
    assert "".join(read.texts).count(name) >= 4


def test_rows_tell_what_they_are_filtered_by_and_tables_what_file_they_make():
    table = replace(race(), traits=lambda row: {"row": f'{row.name}"<\x1b'})
    html = render_html(table, file="a<b")
    assert html.count('data-row="ann&#34;&lt;\\x1b"') == 1
    assert 'data-file="a&lt;b"' in html
