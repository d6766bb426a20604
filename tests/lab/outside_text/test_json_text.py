import json
import math

import pytest
from hypothesis import given

from sfao.lab.outside_text.files import read_each_line
from sfao.lab.outside_text.json_text import parse_json, read_json
from sfao.lab.outside_text.limits import MOST_DEPTH, OutsideTextError
from tests.lab.outside_text.test_yaml_text import VALUES


@given(VALUES)
def test_what_json_writes_is_read_back(value):
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1" + "0" * 400, "must hold whole numbers below 2"),
        ("9" * 5000, "must be JSON: Exceeds the limit"),
        ('{"a": ' + str(2**64) + "}", "must hold whole numbers below 2"),
        ("[" * 60 + "]" * 60, f"at most {MOST_DEPTH} levels deep"),
        ("[" * 100_000, f"at most {MOST_DEPTH} levels deep"),
        ('{"a": 1, "a": 2}', "'a' must be there once, got it again"),
        ('["\\ud800"]', "must hold whole characters"),
        ('{"\\ud800": 1}', "must hold whole characters"),
        ("[NaN]", "must hold finite numbers, got NaN"),
        ("[-Infinity]", "must hold finite numbers"),
        ("[1e999]", "must hold finite numbers, got 1e999"),
        ("", "must be JSON"),
        ("{} {}", "must be JSON"),
        ("[1", "must be JSON"),
        (b"\xff\xfe[\x00]\x00", "must be text in UTF-8, got UTF-16"),
        (b"[\xff]", "must be text in UTF-8, got the byte 0xff"),
        (b'["a\0"]', "must be text, got a NUL byte"),
    ],
)
def test_limits(text, reason):
    with pytest.raises(OutsideTextError, match=reason) as caught:
        parse_json(text)
    assert len(str(caught.value)) < 300


def test_pairs_of_surrogates_and_long_digits_in_text_are_fine():
    assert parse_json('["\\ud83d\\ude00", "' + "7" * 64 + '"]') == ["😀", "7" * 64]


def test_numbers_that_are_none_are_read_where_they_are_told():
    assert math.isnan(parse_json("[NaN]", finite=False)[0])
    assert parse_json("[1e999]", finite=False) == [math.inf]


def test_files_and_lines(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n')
    assert read_json(path) == {"a": 1}
    path.write_bytes(b"1\r\n22\n\n333")
    assert list(read_each_line(path, 5)) == [b"1", b"22", b"", b"333"]
    with pytest.raises(OutsideTextError, match="at most 2 bytes"):
        list(read_each_line(path, 2))
