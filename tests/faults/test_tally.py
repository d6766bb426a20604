import json
from pathlib import Path

import pytest
import torch

from tests.faults.tally import SOAK, TALLY, Attack


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
