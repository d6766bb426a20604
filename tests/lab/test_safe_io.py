import json
import math
import os

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.safe_io import (
    MAX_DEPTH,
    MAX_VALUES,
    MAX_YAML,
    InputError,
    find_lines,
    iter_lines,
    open_file,
    parse_json,
    parse_yaml,
    read_file,
    read_json,
    read_yaml_file,
)
from tests.faults.hostile import BOMB

LETTERS = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(SCALARS | LETTERS, lambda inner: st.lists(inner) | st.dictionaries(LETTERS, inner), max_leaves=10)


@given(VALUES)
def test_round_trip(value):
    assert parse_yaml(yaml.safe_dump(value)) == value
    assert parse_json(json.dumps(value)) == parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text", ["3", "0x1f", "1_000", "1:30", "1.5", "-2.5e+3", "~", "yes", "[1, {a: b}]", "a: &x [1]\nb: *x", "", "'2'"]
)
def test_ordinary_yaml_is_read_as_pyyaml_reads_it(text):
    assert parse_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9" * 5000, "must be YAML: Exceeds the limit"),
        ("0x" + "f" * 5000, "must hold integers"),
        (str(2**64), "must hold integers below 2\\*\\*64 in size"),
        ("[.inf]", "must hold finite numbers, got inf"),
        ("2020-01-01", "must hold numbers, text, lists and mappings, got datetime.date"),
        ("[" * 100_000, f"at most {MAX_DEPTH} levels deep"),
        (BOMB, f"at most {MAX_VALUES:,} values, aliases included"),
        ("".join(f"a{n}: &a{n} [{f'*a{n - 1}' if n else 1}]\n" for n in range(999)), "values, aliases"),
        ("x: &x {a: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [{'*x, ' * 500}]}}\n" for n in range(30)), "values, aliases"),
        ("[" + "1," * 20_000 + "1]", f"at most {MAX_VALUES:,} values"),
        ("a: &a [*a]", r"must not have \*a inside of &a"),
        ("- " * 100_000, f"at most {MAX_DEPTH} levels deep"),
        ("a" * (MAX_YAML + 1), f"at most {MAX_YAML:,} bytes"),
        ("a: 1\na: 2", "`a` must be there once, got it again"),
        ("a: {b: 1, b: 2}", "`a.b` must be there once"),
        ("? [a]\n: 1", "must have names as keys"),
        ('"\\ud800"', "must hold whole characters"),
        ('"\\U0011ffff"', "must be YAML"),
        ("\x00", "must be YAML"),
        ("!!python/object/apply:os.system [exit]", "must be YAML: could not determine a constructor"),
        ("!!set {a, b}", "must hold numbers, text"),
        ("[1", "must be YAML"),
    ],
)
def test_yaml_that_is_refused(text, reason):
    with pytest.raises(InputError, match=reason) as caught:
        parse_yaml(text)
    assert len(str(caught.value)) < 300


@given(st.text(alphabet="[]{}&*a:,-? !|>'\"#%@`\n1.e+_x~<=", max_size=60))
def test_any_text_is_a_value_or_an_input_error(text):
    try:
        value = parse_yaml(text)
    except InputError:
        return
    assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("piece", ["{a: ", "x, ", "- \n", "&a ", "? ", "'x' "])
def test_the_longest_hostile_yaml_is_refused_early(piece):
    with pytest.raises(InputError):
        parse_yaml("[" + piece * (MAX_YAML // len(piece) - 1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1" + "0" * 400, "must hold integers below 2"),
        ("9" * 5000, "must be JSON: Exceeds the limit"),
        ("[" * 100_000, f"at most {MAX_DEPTH} levels deep"),
        ('["\\ud800"]', "must hold whole characters"),
        ("[NaN]", "must hold finite numbers, got nan"),
        ("[1e999]", "must hold finite numbers, got inf"),
        (f"[{'1' * 400}.0]", "must hold finite numbers, got inf"),
        ("{} {}", "must be JSON"),
        ("[1", "must be JSON"),
        (b"\xff\xfe[\x00]\x00", "must be text in UTF-8, got UTF-16"),
        (b"[\xff]", "must be text in UTF-8, got the byte 0xff"),
        (b'["a\0"]', "must be text, got a NUL byte"),
    ],
)
def test_json_that_is_refused(text, reason):
    with pytest.raises(InputError, match=reason) as caught:
        parse_json(text)
    assert len(str(caught.value)) < 300


def test_json_that_looks_suspicious_and_is_fine():
    assert parse_json('["\\ud83d\\ude00", "' + "7" * 64 + '"]') == ["😀", "7" * 64]
    assert math.isnan(parse_json("[NaN]", finite=False)[0])
    assert parse_json("[1e999]", finite=False) == [math.inf]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("lr: 1\n".encode("utf-16"), "c.yaml: must be text in UTF-8, got UTF-16"),
        ("a: 1\nb: é\n".encode("latin-1"), "c.yaml:2: must be text in UTF-8, got the byte 0xe9"),
        (b"a: 1\n\nb: \0\n", "c.yaml:3: must be text, got a NUL byte"),
        (b"a: 1\nb: [\n", "c.yaml:3: must be YAML"),
    ],
)
def test_errors_name_the_line(data, message, tmp_path):
    (tmp_path / "c.yaml").write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_yaml_file(tmp_path / "c.yaml")
    assert caught.value.at("c.yaml").startswith(message)


def test_files(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbfa: 1\nb:\n  c: 2\n")
    assert read_yaml_file(path) == {"a": 1, "b": {"c": 2}}
    assert find_lines(path) == {("a",): 1, ("b",): 2, ("b", "c"): 3}
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n')
    assert read_json(path) == {"a": 1}
    path.write_bytes(b"1\r\n22\n\n333")
    assert list(iter_lines(path, 5)) == [b"1", b"22", b"", b"333"]
    with pytest.raises(InputError, match="at most 2 bytes"):
        list(iter_lines(path, 2))


def test_links_and_devices(tmp_path):
    endless, link = tmp_path / "endless", tmp_path / "link"
    endless.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="bytes, got more"):
        read_yaml_file(endless)
    (tmp_path / "file").write_text("x")
    link.symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="not a link"):
        open_file(link, os.O_WRONLY | os.O_TRUNC, "wb")
    with pytest.raises(OSError, match="plain file"):
        read_file(tmp_path)
    assert (tmp_path / "file").read_text() == "x"
    assert read_file(tmp_path / "file", 0) == b"x"
