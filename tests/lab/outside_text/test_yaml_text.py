import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.outside_text.limits import MOST_DEPTH, MOST_VALUES, MOST_YAML, OutsideTextError
from sfao.lab.outside_text.yaml_text import find_lines, parse_yaml, read_yaml_file
from tests.faults.hostile import BOMB

LETTERS = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(PLAIN | LETTERS, lambda inner: st.lists(inner) | st.dictionaries(LETTERS, inner), max_leaves=10)


@given(VALUES)
def test_what_yaml_writes_is_read_back(value):
    assert parse_yaml(yaml.safe_dump(value)) == value


@pytest.mark.parametrize(
    "text", ["3", "0x1f", "1_000", "1:30", "1.5", "-2.5e+3", "~", "yes", "[1, {a: b}]", "a: &x [1]\nb: *x", "", "'2'"]
)
def test_ordinary_text_means_what_it_means_to_everybody(text):
    assert parse_yaml(text) == yaml.safe_load(text)


def test_dates_are_text():
    assert parse_yaml("[2020-01-01, 2020-13-45, 0001-01-01 00:00:00]") == [
        "2020-01-01",
        "2020-13-45",
        "0001-01-01 00:00:00",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9" * 5000, "must hold whole numbers below 2\\*\\*64 in size"),
        ("0x" + "f" * 5000, "must hold whole numbers"),
        ("0b_", "must hold whole numbers"),
        (str(2**64), "must hold whole numbers"),
        ("[.inf]", "must hold finite numbers, got '.inf'"),
        ("1.0e+999", "must hold finite numbers"),
        (".nan", "must hold finite numbers"),
        ("[" * 60 + "]" * 60, f"at most {MOST_DEPTH} levels deep"),
        ("[" * 100_000, f"at most {MOST_DEPTH} levels deep"),
        ("- " * 60 + "1", f"at most {MOST_DEPTH} levels deep"),
        ("".join(f"a{n}: &a{n} [{f'*a{n - 1}' if n else 1}]\n" for n in range(99)), "levels deep"),
        (BOMB, f"at most {MOST_VALUES:,} values, aliases included"),
        ("x: &x {a: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [{'*x, ' * 500}]}}\n" for n in range(30)), "values, aliases"),
        ("[" + "1," * 20_000 + "1]", f"at most {MOST_VALUES:,} values"),
        ("a" * (MOST_YAML + 1), f"at most {MOST_YAML:,} bytes"),
        ("a: &a [*a]", "must not hold an alias of what it stands in"),
        ("a: 1\na: 2", "`a` must be there once, got it again"),
        ("a: {b: 1, b: 2}", "`a.b` must be there once"),
        ("? [a]\n: 1", "must have names as keys"),
        ('"\\ud800"', "must hold whole characters"),
        ('"\\U0011ffff"', "must be YAML"),
        ("\x00", "must be YAML"),
        ("!!python/object/apply:os.system [exit]", "must be YAML: could not determine a constructor"),
        ("!!binary x", "must be YAML"),
        ("!!timestamp 2020-13-45", "must be YAML"),
        ("!!int x", "must hold whole numbers"),
        ("!!float x", "must hold finite numbers"),
        ("[1", "must be YAML"),
        ("--- 1\n--- 2", "must be YAML"),
    ],
)
def test_limits(text, reason):
    with pytest.raises(OutsideTextError, match=reason) as caught:
        parse_yaml(text)
    assert len(str(caught.value)) < 300


@given(st.text(alphabet="[]{}&*a:,-? !|>'\"#%@`\n1.e+_x~<=", max_size=60))
def test_any_text_is_a_value_or_an_error_of_ours(text):
    try:
        value = parse_yaml(text)
    except OutsideTextError:
        return
    assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("piece", ["{a: ", "x, ", "- \n", "&a ", "? ", "'x' "])
def test_the_largest_that_fits_is_refused_before_it_is_read(piece):
    with pytest.raises(OutsideTextError):
        parse_yaml("[" + piece * (MOST_YAML // len(piece) - 1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("lr: 1\n".encode("utf-16"), "c.yaml: must be text in UTF-8, got UTF-16"),
        ("a: 1\nb: é\n".encode("latin-1"), "c.yaml:2: must be text in UTF-8, got the byte 0xe9"),
        (b"a: 1\n\nb: \0\n", "c.yaml:3: must be text, got a NUL byte"),
        (b"a: 1\nb: [\n", "c.yaml:3: must be YAML"),
    ],
)
def test_a_file_is_named_with_the_line(data, message, tmp_path):
    (tmp_path / "c.yaml").write_bytes(data)
    with pytest.raises(OutsideTextError) as caught:
        read_yaml_file(tmp_path / "c.yaml")
    assert caught.value.at("c.yaml").startswith(message)


def test_a_mark_of_the_encoding_is_no_part_of_the_text(tmp_path):
    (tmp_path / "c.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml_file(tmp_path / "c.yaml") == {"a": 1}
    assert find_lines(tmp_path / "c.yaml") == {("a",): 1}


def test_a_file_without_an_end_is_refused(tmp_path):
    (tmp_path / "c.yaml").symlink_to("/dev/zero")
    with pytest.raises(OutsideTextError, match="bytes, got more"):
        read_yaml_file(tmp_path / "c.yaml")
