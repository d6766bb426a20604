"""The page on reliability: it says what the kept counts say."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reliability", DOCS / "make_reliability.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def line(**changes: object) -> str:
    told = {"target": "a file", "what": "one bit flipped", "trials": 3, "broke": 0, "soak": True, "seconds": 1.5}
    return json.dumps({**told, "where": "2 cores", **changes}) + "\n"


def test_the_page_is_that_of_the_records_beside_it(script: ModuleType) -> None:
    assert (DOCS / "reliability.md").read_text() == script.make_page(DOCS / "records"), "make reliability"


def test_nothing_is_left_open_on_the_page() -> None:
    assert "<<" not in (DOCS / "reliability.md").read_text()


def test_counts_of_one_attack_are_added_up_and_told(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally, other = tmp_path / "tally.jsonl", tmp_path / "other.jsonl"
    tally.write_text(line() + line(trials=4000, broke=1))
    other.write_text(line(target="a|b", what="cut off", where="16 cores"))
    record = script.collect([tally, other])
    assert [(each["target"], each["trials"], each["broke"]) for each in record["attacks"]] == [
        ("a file", 4003, 1),
        ("a|b", 3, 0),
    ]
    assert record["soak"] is True
    assert record["where"] == {"16 cores": {"trials": 3, "seconds": 2}, "2 cores": {"trials": 4003, "seconds": 3}}
    (tmp_path / "determinism.json").write_text((DOCS / "records" / "determinism.json").read_text())
    places = ["--records", str(tmp_path), "--page", str(tmp_path / "page.md")]
    monkeypatch.setattr(sys, "argv", ["make_reliability.py", "--collect", str(tally), str(other), *places])
    script.main()
    page = (tmp_path / "page.md").read_text()
    assert "2 attacks, 4,006 trials, 1 broke: `make soak`, on 20" in page
    assert "3 in 2 s on 16 cores, and 4,003 in 3 s on 2 cores" in page
    assert "| a file | one bit flipped | 4,003 | 1 |\n| a\\|b | cut off | 3 | 0 |" in page


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must be a tally with at least one attack"),
        ("{", r"tally\.jsonl:1 must be JSON"),
        (line(trials="many"), r"tally\.jsonl:1 must have `trials`, got 'many'"),
        (line() + line(soak=False), "must be of one share of a soak, or of none, got several"),
    ],
)
def test_a_tally_that_cannot_be_counted_is_refused(script: ModuleType, tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / "tally.jsonl").write_text(text)
    with pytest.raises(ValueError, match=rule):
        script.collect([tmp_path / "tally.jsonl"])


def test_a_tally_that_is_nowhere_is_refused(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`collect` must be a tally that can be read"):
        script.collect([tmp_path / "nowhere.jsonl"])
