"""Names of one's own: what they lead to, and what is said of those that lead nowhere."""

import re
import sys

import pytest

from sfao.lab.names import Registry, is_own, name_folder


def take_numbers(found, name):
    if not isinstance(found, int):
        raise TypeError(f"must be a whole number, got {type(found).__name__}")
    return found


@pytest.fixture
def numbers():
    return Registry("number", "sfao.test.numbers", take_numbers, {"one": 1, "two": 2})


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder that is not searched yet, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def announce(folder, **points):
    """Install a package that announces these."""
    place = folder / "site"
    info = place / "plugged-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[sfao.test.numbers]\n{lines}\n")
    sys.path.append(str(place))
    return place


def test_module_and_attribute_are_found_in_the_current_folder(numbers, here):
    (here / "own_numbers.py").write_text("three = 3\nclass Inner:\n    four = 4\n")
    assert numbers.load("any", "own_numbers:three") == 3
    assert numbers.load("any", "own_numbers:Inner.four") == 4
    assert list(numbers) == ["one", "two"]


def test_what_a_package_announces_is_listed_and_found(numbers, here):
    place = announce(here, six="plugged_numbers:six", bad="plugged_numbers:none")
    (place / "plugged_numbers.py").write_text("six = 6\n")
    assert sorted(numbers.list_all()) == ["bad", "one", "six", "two"]
    assert numbers.load("any", "six") == 6
    with pytest.raises(ValueError, match="'bad' cannot be found: module 'plugged_numbers' has no 'none'"):
        numbers.load("any", "bad")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("oen", "`which` must be one of one, two, got 'oen' (did you mean 'one'?); your own is module:attribute"),
        (":one", "`which` must be one of one, two, got ':one'"),
        ("sys:", "`which` must be one of one, two, got 'sys:'"),
        (
            "no_such_module:x",
            "`which` 'no_such_module:x' cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("broken_numbers:x", "`which` 'broken_numbers:x' cannot be imported: SyntaxError: "),
        ("leaving_numbers:x", "`which` 'leaving_numbers:x' cannot be imported: SystemExit: 3"),
        ("math:x", "`which` 'math:x' cannot be found: module 'math' has no 'x'"),
        ("math:pi", "`which` 'math:pi' must be a whole number, got float"),
        ("math.:pi", "`which` 'math.:pi' cannot be imported: "),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line(numbers, here, name, said):
    (here / "broken_numbers.py").write_text("x = (\n")
    (here / "leaving_numbers.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(ValueError, match=f"^{re.escape(said)}") as caught:
        numbers.load("which", name)
    assert "\n" not in str(caught.value)


def test_reading_tells_what_is_known_without_importing(numbers, here):
    (here / "unread_numbers.py").write_text("x = 1\n")
    assert numbers.is_known("one")
    assert not numbers.is_known("unread_numbers:x")
    assert "unread_numbers" not in sys.modules
    numbers.load("any", "unread_numbers:x")
    assert numbers.is_known("unread_numbers:x")


def test_what_is_lent_is_known_for_a_while_and_hides_nothing_for_good(numbers):
    with numbers.override({"five": 5, "one": 10}):
        assert (numbers["five"], numbers["one"]) == (5, 10)
    assert dict(numbers) == {"one": 1, "two": 2}
    with (
        pytest.raises(ValueError, match="`number` 'pi' must be a whole number, got float"),
        numbers.override({"pi": 3.1}),
    ):
        pass
    assert dict(numbers) == {"one": 1, "two": 2}


def test_names_as_folders():
    assert name_folder("mine:Method-0") == "mine.Method-0"
    assert [is_own(name) for name in ("a:b", "a", ":b", "a:", 3)] == [True, False, False, False, False]
