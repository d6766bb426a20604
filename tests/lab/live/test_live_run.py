"""The states of a run that is looked at: made at most every half second, and at once when it ends."""

import json
import re
from pathlib import Path

import pytest

from sfao.lab.live.live_run import REFRESH, Ending, LiveRun, describe_error, describe_record
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.record import Record
from sfao.lab.run.run_log import STEPS


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def write_step(folder, step):
    line = {"step": step, "task": 0, "epoch": 0, "loss": 1.0, "decisions": {}, "gate": {}}
    with open(folder / STEPS, "a") as file:
        file.write(json.dumps(line) + "\n")


def test_all_who_look_within_a_moment_get_the_same_and_the_end_is_told_at_once(tmp_path):
    clock = Clock()
    live = LiveRun(tmp_path, lambda: None, clock)
    write_step(tmp_path, 20)
    first = live.as_json()
    assert [bucket[0] for bucket in json.loads(first)["history"]["buckets"]] == [20]
    write_step(tmp_path, 40)
    assert live.as_json() is first
    live.end(Ending("done", "The run is done"))
    told = json.loads(live.as_json())
    assert told["ending"]["headline"] == "The run is done"
    assert [bucket[0] for bucket in told["history"]["buckets"]] == [20, 40]


def test_telemetry_that_cannot_be_read_is_told_until_it_can(tmp_path):
    clock = Clock()
    live = LiveRun(tmp_path, lambda: None, clock)
    (tmp_path / STEPS).symlink_to(tmp_path / "elsewhere")
    told = json.loads(live.as_json())
    assert re.fullmatch(rf"{STEPS} cannot be read: .*not a link.*", *told["notices"])
    assert told["history"]["buckets"] == []
    (tmp_path / STEPS).unlink()
    write_step(tmp_path, 20)
    clock.now = 1.1 * REFRESH
    told = json.loads(live.as_json())
    assert (told["notices"], len(told["history"]["buckets"])) == ([], 1)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (Interrupted(), "interrupted", "interrupted; the state is saved, go on with the same command and --resume"),
        (KeyboardInterrupt(), "interrupted", "Go on with the same command and --resume"),
        (OSError(28, "No space left", "run/x"), "failed", "OSError: [Errno 28] No space left: 'run/x'"),
    ],
)
def test_errors_in_words(error, status, text):
    ending = describe_error(error)
    assert (ending.status, ending.text, ending.command) == (status, text, "")


def test_the_command_for_the_report_can_be_typed_as_it_stands():
    record = Record("b", "domain", "sgd", 0, "diverged", error="the loss was nan")
    ending = describe_record(record, Path("runs/it's mine"))
    assert ending.command == """sfao report 'runs/it'"'"'s mine'"""
    assert (ending.headline, ending.text) == ("The run diverged", "the loss was nan")
