from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.outside_text.plain import join_lines, plain, quote, shorten


@given(st.text())
def test_nothing_that_acts_is_left_and_the_rest_stays(text):
    shown = plain(text)
    assert not [letter for letter in shown if category(letter) in ("Cc", "Cs", "Zl", "Zp") and letter not in "\n\t"]
    assert plain(shown) == shown
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb\x00", "a\\rb\\x00"),
        ("\u202eabc", "\\u202eabc"),
        ("\udcff", "\\udcff"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("שלום, 日本語, नमस्ते, 👩‍🔬", "שלום, 日本語, नमस्ते, 👩‍🔬"),
    ],
)
def test_acting_letters_are_written_out(text, shown):
    assert plain(text) == shown


@given(st.text())
def test_joined_lines_are_one_line_without_controls(text):
    joined = join_lines(text)
    assert len(joined.splitlines()) <= 1
    joined.encode()


@given(st.text(), st.integers(8, 50))
def test_a_short_text_stays_and_a_long_one_keeps_its_ends(text, most):
    said = shorten(text, most)
    assert said == text if len(text) <= most else len(said) == most + 5
    assert said[: most // 2] == text[: most // 2]


def test_a_value_is_quoted_whatever_its_size():
    assert quote("x") == "'x'"
    assert len(quote("x" * 10**6)) < 200
    assert len(quote(10**5000)) < 200
    assert len(quote([[1] * 10**4] * 10)) < 200
