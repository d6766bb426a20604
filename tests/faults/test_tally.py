import json
from pathlib import Path

import pytest
import torch

from tests.faults import tally
from tests.faults.tally import SOAK, TALLY, Attack, in_soak


def _fail() -> None:
    raise AssertionError("the number changed")


def test_an_attack_that_breaks_something_is_counted_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TALLY, str(tmp_path / "tally.jsonl"))
    monkeypatch.delenv(SOAK, raising=False)
    attack = Attack("record.json", "one digit changed")
    attack.try_it("seed", lambda: None)
    attack.try_it("steps", _fail)
    with pytest.raises(AssertionError, match="1 of 2 broke: steps: the number changed"):
        attack.end()
    told = json.loads((tmp_path / "tally.jsonl").read_text())
    assert told.pop("seconds") >= 0
    assert f"torch {torch.__version__}" in told.pop("where")
    assert told == {
        "target": "record.json",
        "what": "one digit changed",
        "trials": 2,
        "broke": 1,
        "soak": False,
    }


def test_an_attack_that_tries_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TALLY, raising=False)
    with pytest.raises(AssertionError, match="nothing was tried"):
        Attack("record.json", "one digit changed").end()


def test_attacks_are_longer_in_a_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOAK, raising=False)
    assert in_soak(50, 100_000) == 50
    monkeypatch.setenv(SOAK, "1")
    assert in_soak(50, 100_000) == 100_000
    assert in_soak(8, 1) == 1
    monkeypatch.setenv(SOAK, "0.1")
    assert in_soak(50, 100_000) == 10_000
    assert in_soak(50, 60) == 50
    assert in_soak(80, 1) == 10
    assert in_soak(float("inf"), 2.0) == 20.0


def test_the_parts_of_an_attack_are_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "PARTS", 3)
    assert sorted(number for part in range(3) for number in tally.list_part(range(10), part)) == [*range(10)]
