"""What a run logs, and that a run which is stopped, killed or goes back ends with the same log."""

import csv
import json
import time

import pytest

from sfao.lab.run.compare import compare
from sfao.lab.run.errors import FolderError, Interrupted
from sfao.lab.run.jobs import plan
from sfao.lab.run.loop import execute
from sfao.lab.run.run_log import open_loggers
from tests.command import Command
from tests.lab.run.test_run import FAST, StopAt, config

#: A guard that finds a sharp rise again and again.
GUARDED = {"epochs": 2, "lr": 0.3, "validation": 0.2, "guard.kind": "measured", "guard.rise": 0.001, "guard.every": 20}


def read(folder) -> list[tuple[int, str, float]]:
    with open(folder / "log.csv", newline="") as file:
        return [(int(row["step"]), row["name"], float(row["value"])) for row in csv.DictReader(file)]


def values_of(rows, name):
    return {step: value for step, found, value in rows if found == name}


#: Lines that are none of a log: no text, too few values, no step, an endless name.
DAMAGES = (b"\xff\xfe\n", b"1,loss\n", b"x,loss,1\n", b"1," + b"a" * 200_000 + b",1\n")


@pytest.mark.parametrize("damage", DAMAGES, ids=len)
def test_a_damaged_log_is_named_and_stays_as_it_is(tmp_path, damage):
    (tmp_path / "log.csv").write_bytes(b"step,name,value\n" + damage)
    with (
        pytest.raises(FolderError, match=r"log\.csv must be a log of steps"),
        open_loggers(["csv"], tmp_path, config("sgd")),
    ):
        pass
    assert (tmp_path / "log.csv").read_bytes() == b"step,name,value\n" + damage


def test_a_log_has_the_values_of_steps_json_the_record_and_the_memory(tmp_path):
    record = execute(config("sfao", tasks=2), tmp_path / "run", log=["csv"])
    rows = read(tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert values_of(rows, "loss") == {line["step"]: line["loss"] for line in lines}
    assert values_of(rows, "task") == {line["step"]: line["task"] + 1 for line in lines}
    for layer in record.decisions:
        for decision in record.decisions[layer]:
            counts = {line["step"]: line["decisions"][layer][decision] for line in lines}
            assert values_of(rows, f"layers/{layer}/{decision}") == counts
        for look in ("cosine", "kept"):
            told = {line["step"]: line["gate"][layer][look] for line in lines if look in line["gate"].get(layer, {})}
            assert values_of(rows, f"layers/{layer}/{look}") == pytest.approx(told, abs=1e-4)
        assert values_of(rows, f"layers/{layer}/kept")
    assert 2 * values_of(rows, "memory_bytes")[100] == record.memory_bytes  # the second task has not ended there
    for number in range(2):
        column = {50 * (row + 1): record.accuracy_matrix[row][number] for row in range(2)}
        assert values_of(rows, f"accuracy/task {number + 1}") == column
    first, last = record.accuracy_matrix
    assert values_of(rows, "accuracy/average") == pytest.approx({50: first[0], 100: sum(last) / 2})
    for name, value in record.metrics.items():
        assert values_of(rows, f"metrics/{name}") == {100: value}


def test_a_log_has_the_drift_of_a_bound(tmp_path):
    execute(config("drift-bound", tasks=2), tmp_path / "run", log=["csv"])
    rows = read(tmp_path / "run")
    for layer in ("hidden1", "classifier"):
        drifts, allowed = (values_of(rows, f"layers/{layer}/{name}") for name in ("drift", "allowed"))
        assert set(drifts) == {60, 80, 100}
        assert set(allowed.values()) == {0.1}


def test_loggers_change_nothing_of_a_run(tmp_path):
    plain, logged = (execute(config("sfao"), tmp_path / str(len(log)), log=log) for log in ([], ["csv"]))
    assert plain.weights_sha256 == logged.weights_sha256
    assert (tmp_path / "0" / "steps.jsonl").read_bytes() == (tmp_path / "1" / "steps.jsonl").read_bytes()
    assert not (tmp_path / "0" / "log.csv").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing stops."""
    folder = tmp_path_factory.mktemp("whole")
    execute(config("sfao"), folder, log=["csv"])
    return folder


@pytest.mark.parametrize("stops", [(1,), (37, 38), (50,), (51, 99), (99, 100)])
def test_stopped_anywhere_the_log_is_the_same(tmp_path, whole, stops):
    folder = tmp_path / "parts"
    for stop in stops:
        with pytest.raises(Interrupted):
            execute(config("sfao"), folder, resume=True, stopping=StopAt(folder, stop), log=["csv"])
    execute(config("sfao"), folder, resume=True, log=["csv"])
    assert read(folder) == read(whole)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("settings", [{}, GUARDED], ids=["plain", "guarded"])
@pytest.mark.parametrize("step", [1, 21, 63, 100])
def test_killed_far_behind_its_checkpoint_the_log_and_the_steps_are_the_same(tmp_path, settings, step):
    """The checkpoint is of the end of the task before; what was told since then is told once."""
    configured = config("sgd", **settings)
    whole = execute(configured, tmp_path / "whole", log=["csv"])
    folder, seen = tmp_path / "killed", []

    def kill() -> bool:
        seen.append(None)
        if len(seen) == step:
            raise Killed
        return False

    with pytest.raises(Killed):
        execute(configured, folder, stopping=kill, log=["csv"])
    before = read(folder)
    assert execute(configured, folder, resume=True, log=["csv"]).weights_sha256 == whole.weights_sha256
    assert read(folder) == read(tmp_path / "whole")
    assert read(folder)[: len(before)] == before
    assert (folder / "steps.jsonl").read_bytes() == (tmp_path / "whole" / "steps.jsonl").read_bytes()


def test_a_rollback_stays_in_the_log_as_steps_that_were_made(tmp_path):
    record = execute(config("sgd", **GUARDED), tmp_path / "run", log=["csv"])
    assert record.rollbacks
    rows = read(tmp_path / "run")
    undone = sum(rollback["from"] - rollback["to"] for rollback in record.rollbacks)
    assert max(step for step, _, _ in rows) == record.steps + undone
    assert len({(step, name) for step, name, _ in rows}) == len(rows)
    assert [step for step, _, _ in rows] == sorted(step for step, _, _ in rows)
    assert max(values_of(rows, "rollbacks").values()) == len(record.rollbacks)
    lines = (tmp_path / "run" / "steps.jsonl").read_text().splitlines()
    assert len(values_of(rows, "loss")) > len(lines)


def test_steps_are_in_the_file_while_the_run_goes_on(tmp_path):
    """Without a checkpoint, as long as a user may wait for the first: each line is there one step after its own."""
    lengths = []

    def look() -> bool:
        lengths.append(len((tmp_path / "run" / "steps.jsonl").read_text().splitlines()))
        return False

    execute(config(), tmp_path / "run", checkpoint_seconds=1e6, stopping=look, log=["csv"])
    assert lengths == [step // 20 for step in range(1, 101)]


def test_a_process_that_is_killed_leaves_its_steps(tmp_path):
    command = ["run", "split-mnist-5k", "--out", "run", "--method", "sgd", "--set", "epochs=200", "--log", "csv"]
    process = Command(*command, "--threads", "1", "--checkpoint-seconds", "1000", cwd=tmp_path)
    steps = tmp_path / "run" / "steps.jsonl"
    deadline = time.monotonic() + 120
    while not (steps.exists() and steps.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert not (tmp_path / "run" / "checkpoint.pt").exists()
    assert json.loads(steps.read_text().splitlines()[0])["step"] == 20
    assert values_of(read(tmp_path / "run"), "loss")[20] == json.loads(steps.read_text().splitlines()[0])["loss"]


def test_the_runs_of_a_comparison_log_each_in_its_folder(tmp_path):
    jobs = plan("split-mnist-5k", ["sgd", "sfao"], [0], tmp_path, settings=FAST)
    for record, job in zip(compare(jobs, workers=1, log=["csv"]), jobs, strict=True):
        assert values_of(read(job.folder), "metrics/average_accuracy") == {100: record.metrics["average_accuracy"]}
