"""Loggers beside their real libraries: what they write is read back, also of runs that were stopped or killed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sfao.lab.loggers import LOGGERS
from sfao.lab.run.config import configure
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.loop import execute
from tests.integrations.wandb_files import has_ended, read_history
from tests.lab.run.test_run_log import read as read_csv

Rows = list[tuple[int, str, float]]
SETTINGS = {"epochs": 1, "model.hidden": 16, "tasks": 2, "batch_size": 40, "lr": 0.05}
#: In seconds.
LONGEST_WAIT = 300
#: What the libraries themselves warn of is theirs.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def local(monkeypatch):
    for name in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, as long as a busy machine may take."""
    deadline = time.monotonic() + LONGEST_WAIT
    while not condition():
        assert time.monotonic() < deadline, "not within the longest wait"
        time.sleep(0.05)


def read_tensorboard(folder: Path) -> Rows:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    return [(each.step, tag, each.value) for tag in events.Tags()["scalars"] for each in events.Scalars(tag)]


def read_wandb(folder: Path) -> Rows:
    """Read runs that were finished; wandb's own process may still be writing."""
    wait_until(lambda: has_ended(folder))
    rows = read_history(folder)
    return [(int(row["step"]), name, value) for row in rows for name, value in row.items() if name != "step"]


def read_mlflow(folder: Path) -> Rows:
    from mlflow.tracking import MlflowClient

    known = json.loads((folder / "mlflow.json").read_text())
    client = MlflowClient(known["uri"])
    names = client.get_run(known["run"]).data.metrics
    return [(each.step, name, each.value) for name in names for each in client.get_metric_history(known["run"], name)]


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow}


def check_same(rows: Rows, wanted: Rows) -> None:
    """Check that there are the same values, each once; TensorBoard's are of single precision."""
    assert sorted((step, name) for step, name, _ in rows) == sorted((step, name) for step, name, _ in wanted)
    for (_, _, value), (_, _, other) in zip(sorted(rows), sorted(wanted), strict=True):
        assert value == pytest.approx(other, rel=1e-6)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Rows:
    folder = tmp_path_factory.mktemp("whole") / "run"
    execute(configure("split-mnist-5k", "sfao", settings=SETTINGS), folder, log=["csv"])
    return read_csv(folder)


@pytest.mark.parametrize("name", READERS)
def test_a_run_that_was_stopped_logs_every_value_once(tmp_path, whole, name):
    config, folder, seen = configure("split-mnist-5k", "sfao", settings=SETTINGS), tmp_path / "run", []

    def stop() -> bool:
        seen.append(None)
        return len(seen) == 63

    with pytest.raises(Interrupted):
        execute(config, folder, stopping=stop, log=[name])
    execute(config, folder, resume=True, log=[name])
    check_same(READERS[name](folder), whole)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("name", READERS)
def test_a_run_far_behind_its_checkpoint_logs_every_value_once(tmp_path, whole, name):
    """The checkpoint is of the end of the first task, and the second one had come to its last step."""
    config, folder, seen = configure("split-mnist-5k", "sfao", settings=SETTINGS), tmp_path / "run", []

    def kill() -> bool:
        seen.append(None)
        if len(seen) == 100:
            raise Killed
        return False

    with pytest.raises(Killed):
        execute(config, folder, stopping=kill, log=[name])
    assert any(step > 50 for step, _, _ in READERS[name](folder))
    execute(config, folder, resume=True, log=[name])
    check_same(READERS[name](folder), whole)


SFAO = [sys.executable, "-c", "from sfao.lab.cli.main import main; main()"]
LONG_RUN = shlex.split(
    "run split-mnist-5k --threads 1 --method sgd --set tasks=2 --set epochs=8 --checkpoint-seconds 0.2"
)


@pytest.fixture(scope="module")
def whole_long_run(tmp_path_factory) -> Rows:
    folder = tmp_path_factory.mktemp("long") / "run"
    subprocess.run([*SFAO, *LONG_RUN, "--log", "csv", "--out", folder], capture_output=True, check=True)
    return read_csv(folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_all_loggers_at_once_in_a_process_that_is_killed(tmp_path, whole_long_run, number):
    command = [*SFAO, *LONG_RUN, "--log", "csv,tensorboard", "--log", "wandb", "--log", "mlflow", "--out", "run"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    wait_until((tmp_path / "run" / "checkpoint.previous.pt").exists)
    if number == signal.SIGINT:  # as the terminal sends it, to all processes of the command
        os.killpg(process.pid, number)
    else:
        process.kill()
    _, errors = process.communicate(timeout=LONGEST_WAIT)
    assert not (tmp_path / "run" / "record.json").exists()
    assert number == signal.SIGKILL or errors.decode().startswith("sfao: interrupted; the state is saved"), errors
    done = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    for rows in (read_csv(tmp_path / "run"), *(read(tmp_path / "run") for read in READERS.values())):
        check_same(rows, whole_long_run)


@pytest.mark.parametrize("name", READERS)
def test_a_log_of_ones_own_loop(tmp_path, name):
    with LOGGERS[name](tmp_path, run_name="mine", config={"lr": 0.1}) as logger:
        logger.log({"layers/fc1/kept": 0.5, "loss": 2}, 1)
        logger.log({"accuracy/task 1": 0.25}, 1)
        logger.log({"loss": 1.5}, 3)
    with pytest.raises(ValueError, match="`folder` must hold no log yet"):
        LOGGERS[name](tmp_path)
    with LOGGERS[name](tmp_path, resume=True) as logger:
        for step in (1, 2, 3, 4):
            logger.log({"loss": 9.0}, step)
    rows = [
        (1, "layers/fc1/kept", 0.5),
        (1, "loss", 2.0),
        (1, "accuracy/task 1", 0.25),
        (3, "loss", 1.5),
        (4, "loss", 9.0),
    ]
    check_same(READERS[name](tmp_path), rows)


def test_values_of_tensorboard_are_on_the_disk_within_two_seconds(tmp_path):
    with LOGGERS["tensorboard"](tmp_path) as logger:
        logger.log({"loss": 1.0}, 1)
        time.sleep(2.5)
        logger.log({"loss": 2.0}, 2)  # the writer looks at its clock when something comes
        wait_until(lambda: (1, "loss", 1.0) in read_tensorboard(tmp_path))


def test_settings_and_the_end_are_told_to_mlflow(tmp_path):
    from mlflow.tracking import MlflowClient

    def find_run():
        known = json.loads((tmp_path / "mlflow.json").read_text())
        return MlflowClient(known["uri"]).get_run(known["run"])

    def fail() -> None:
        with LOGGERS["mlflow"](tmp_path, run_name="mine", config={"lr": 0.1, "hidden": [16]}):
            assert find_run().info.status == "RUNNING"
            raise Killed

    with pytest.raises(Killed):
        fail()
    assert (find_run().info.status, find_run().info.run_name) == ("FAILED", "mine")
    assert find_run().data.params == {"lr": "0.1", "hidden": "[16]"}
    with LOGGERS["mlflow"](tmp_path, resume=True):
        assert find_run().info.status == "RUNNING"
    assert find_run().info.status == "FINISHED"


# -- Processes that end while a log is opened, or in a program that logs to wandb itself ------------------------------

LOG_STEP = """
import os, signal, sys
from sfao.lab.loggers import LOGGERS
logger = LOGGERS["wandb"](sys.argv[1], resume=True)
step = int(sys.argv[2])
logger.log({"loss": step / 2}, step)
if sys.argv[3] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
logger.close()
"""

#: MLflow alters a table by a copy of it; without the statements that follow, it never gets past the copy again.
DIE_IN_A_MIGRATION = """
import os, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sfao.lab.loggers import LOGGERS
seen = []
@event.listens_for(Engine, "before_cursor_execute")
def look(connection, cursor, statement, *_):
    if "CREATE TABLE _alembic_tmp_" in "".join(seen):
        os._exit(9)
    seen.append(statement)
LOGGERS["mlflow"](sys.argv[1], resume=True)
"""


def run_python(code: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_killed_run_of_a_program_that_logs_to_wandb_goes_on(tmp_path):
    """The program's service, which its processes find in their environment, has the killed run open and another cwd."""
    with LOGGERS["wandb"](tmp_path / "program") as logger:
        logger.log({"loss": 7.0}, 1)
        assert "WANDB_SERVICE" in os.environ
        killed = run_python(LOG_STEP, "run", "1", "killed", folder=tmp_path)
        assert (killed.returncode, killed.stderr) == (-signal.SIGKILL, "")
        for step in ("2", "3"):
            done = run_python(LOG_STEP, "run", step, "closed", folder=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
    check_same(read_wandb(tmp_path / "run"), [(1, "loss", 0.5), (2, "loss", 1.0), (3, "loss", 1.5)])
    check_same(read_wandb(tmp_path / "program"), [(1, "loss", 7.0)])


def test_what_earlier_runs_of_wandb_left_is_removed(tmp_path):
    for step in (1, 2, 3):
        with LOGGERS["wandb"](tmp_path, resume=True) as logger:
            logger.log({"loss": 1.0}, step)
    names = {path.name.split("-run-")[0] for path in (tmp_path / "wandb").iterdir()}
    assert names <= {"id", "log.csv", "offline", "latest-run", "debug.log", "debug-internal.log"}
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 1


def test_a_database_of_mlflow_whose_making_was_killed_is_made_again(tmp_path):
    killed = run_python(DIE_IN_A_MIGRATION, "run", folder=tmp_path)
    assert (killed.returncode, killed.stderr) == (9, "")
    with LOGGERS["mlflow"](tmp_path / "run", resume=True) as logger:
        logger.log({"loss": 1.0}, 1)
    check_same(read_mlflow(tmp_path / "run"), [(1, "loss", 1.0)])
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"mlflow.db", "mlflow.json"}


def test_a_file_of_tensorboard_that_is_cut_off_is_gone_on_with(tmp_path):
    with LOGGERS["tensorboard"](tmp_path, config={"lr": 0.1}) as logger:
        for step in (1, 2, 3):
            logger.log({"loss": float(step)}, step)
    (file,) = (tmp_path / "tensorboard").iterdir()
    for length in (0, 5, file.stat().st_size - 3):  # nothing, no whole header, no whole last value
        other = tmp_path / str(length)
        (other / "tensorboard").mkdir(parents=True)
        (other / "tensorboard" / file.name).write_bytes(file.read_bytes()[:length])
        with LOGGERS["tensorboard"](other, config={"lr": 0.1}, resume=True) as logger:
            for step in (1, 2, 3, 4):
                logger.log({"loss": float(step)}, step)
        check_same(read_tensorboard(other), [(step, "loss", float(step)) for step in (1, 2, 3, 4)])
        assert count_configs(other) == 1


def count_configs(folder: Path) -> int:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return len(events.Tensors("config/text_summary"))
