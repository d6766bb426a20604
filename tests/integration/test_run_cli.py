"""`sfao run` as a user types it, killed for real."""

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command import Command
from tests.command import run as sfao
from tests.records import read_values

SFAO = [sys.executable, "-c", "from sfao.lab.cli.main import main; main()"]
LONG = ["--set", "epochs=3", "--set", "tasks=2", "--threads", "1", "--checkpoint-seconds", "0.05"]


def record(folder: Path) -> dict:
    return json.loads((folder / "record.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("whole")
    done = sfao("run", "split-mnist-5k", "--method", "sgd", "--out", "run", *LONG, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "average accuracy" in done.stdout
    return record(folder / "run")


def test_a_run_that_was_finished_before_says_that_nothing_was_run(tmp_path):
    command = ["run", "split-mnist-5k", "--method", "sgd", "--out", "run", "--set", "fraction=0.1"]
    first, again = (sfao(*command, cwd=tmp_path) for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0)
    assert again.stdout == f"finished before; nothing was run\n{first.stdout}"
    told = json.loads(sfao(*command, "--json", cwd=tmp_path).stdout)
    assert told == {**read_values(tmp_path / "run"), "ran": False}
    assert sfao(*command, "--quiet", cwd=tmp_path).stdout == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_killed_and_resumed_it_ends_the_same(tmp_path, whole, number):
    command = ["run", "split-mnist-5k", "--method", "sgd", "--out", "run", *LONG]
    process = Command(*command, cwd=tmp_path)
    wait_for(tmp_path / "run" / "checkpoint.previous.pt", process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert not (tmp_path / "run" / "record.json").exists()
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert "--resume" in errors
        assert "Traceback" not in errors
    refused = sfao(*command, cwd=tmp_path)
    assert refused.returncode == 2
    assert "add --resume" in refused.stderr
    resumed = sfao(*command, "--resume", "--json", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["ran"] is True
    for key in ("metrics", "accuracy_matrix", "weights_sha256", "steps", "decisions"):
        assert json.loads(resumed.stdout)[key] == whole[key]
        assert record(tmp_path / "run")[key] == whole[key]


def wait_for(path: Path, process: Command) -> None:
    for _ in range(6000):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    pytest.fail(f"{path.name} never came")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["split-mnst"], "did you mean 'split-mnist'"),
        (["split-mnist-5k", "--method", "sgd", "--set", "lrr=1"], "unknown setting `lrr` (did you mean 'lr'?)"),
        (["split-mnist-5k", "--method", "sgd", "--set", "lr"], "`--set` must be name=value"),
        (["split-mnist-5k", "--method", "sgd", "--config", "none.yaml"], "No such file"),
        (["split-mnist", "--method", "sgd", "--data-root", "nowhere"], "sfao data get mnist"),
        (["split-mnist-5k", "--method", "sgd", "--set", "device=abacus"], "`device` must be one that this machine has"),
        (["split-mnist-5k", "--method", "sgd", "--set", "tasks=7"], "`tasks` must divide the 10 classes"),
        (["split-mnist-5k", "--method", "sgd", "--set", "model.hidden=100000000000"], "`hidden` must give a model of"),
    ],
)
def test_bad_usage(tmp_path, arguments, message):
    done = sfao("run", *arguments, "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert not (tmp_path / "run").exists()


def test_a_diverged_run_fails(tmp_path):
    done = sfao("run", "split-mnist-5k", "--method", "sgd", "--set", "lr=1e30", "--quiet", "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "the run diverged" in done.stderr


def test_a_disk_that_takes_no_more_is_one_line(tmp_path):
    """A limit on the size of files stands in for a full disk: writing the checkpoint fails, for real, halfway."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    command = [*SFAO, "run", "split-mnist-5k", "--method", "sgd", "--out", "run", *LONG]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, preexec_fn=limit)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "sfao: File too large: run/checkpoint.pt"
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [".lock", "config.yaml", "steps.jsonl"]
    again = sfao("run", "split-mnist-5k", "--method", "sgd", "--out", "run", *LONG, cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_output_that_cannot_be_written_is_one_line(tmp_path):
    command = [*SFAO, "run", "split-mnist-5k", "--method", "sgd", "--out", "run", "--set", "epochs=1"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr == "sfao: No space left on device\n"
    assert record(tmp_path / "run")["status"] == "done"


def test_what_nobody_foresaw_is_a_line_and_with_debug_a_traceback(tmp_path):
    (tmp_path / "mine.py").write_text("def build(hidden=3):\n    return {}['a model']\n")
    command = ["run", "split-mnist-5k", "--set", "model.name=mine:build", "--out", "run"]
    done = sfao(*command, cwd=tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 2
    assert "KeyError" in done.stderr
    assert "Traceback" in sfao(*command, "--debug", cwd=tmp_path).stderr
