"""Clocks that jump: times stay sensible, and checkpoints come when they are due."""

import random
import time
from datetime import UTC, datetime, timedelta

import pytest

from sfao.lab.run import record as record_module
from sfao.lab.run.checkpoint import load_checkpoint
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.loop import execute
from tests.faults.small_runs import make_config
from tests.faults.tally import in_soak


class JumpingDate(datetime):
    @classmethod
    def now(cls, zone=None):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=random.uniform(-9000, 9000))


def test_a_clock_that_jumps_changes_no_time_and_no_checkpoint(tmp_path, attack, monkeypatch):
    tried = attack("run", "the clock of the machine jumps by years at every look")
    monkeypatch.setattr(time, "time", lambda: random.uniform(-1e9, 1e10))
    monkeypatch.setattr(time, "time_ns", lambda: random.randrange(10**19))
    monkeypatch.setattr(record_module, "datetime", JumpingDate)
    for number in range(in_soak(2, 50)):
        folder, saved, began = tmp_path / str(number), [], time.monotonic()

        def look(folder=folder, saved=saved):
            loaded = load_checkpoint(folder) if (folder / "checkpoint.pt").exists() else None
            saved.append(loaded and loaded.state["position"]["seconds"])
            return len(saved) == 4

        def trial(folder=folder, look=look, saved=saved, began=began):
            with pytest.raises(Interrupted):
                execute(make_config(), folder, checkpoint_seconds=0, stopping=look)
            record = execute(make_config(), folder, resume=True)
            passed = time.monotonic() - began
            told = [seconds for seconds in saved if seconds is not None]
            assert told == sorted(told)
            assert 0 <= record.seconds <= passed
            assert 0 <= record.step_ms * record.steps <= passed * 1e3
            assert datetime.fromisoformat(record.finished).utcoffset() == timedelta(0)

        tried.try_it(f"time {number}", trial)
