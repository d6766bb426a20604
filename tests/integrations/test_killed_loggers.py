"""Loggers whose process ends at the worst moment: while a log is opened, or in a program that logs to wandb itself."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sfao.lab.loggers import LOGGERS
from tests.integrations.test_loggers import check_same, local, read_mlflow, read_tensorboard, read_wandb

__all__ = ["local"]  # the fixture
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

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


def test_a_service_that_has_ended_is_no_obstacle(tmp_path, monkeypatch):
    """A program that is gone left its service in the environment of what it started."""
    monkeypatch.setenv("WANDB_SERVICE", f"3-1-unix-{tmp_path}/gone")
    done = run_python(LOG_STEP, "run", "1", "closed", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    check_same(read_wandb(tmp_path / "run"), [(1, "loss", 0.5)])


def test_the_service_of_this_process_stays_known_to_those_it_starts(tmp_path):
    with LOGGERS["wandb"](tmp_path / "first"):
        known = os.environ["WANDB_SERVICE"]
        with LOGGERS["wandb"](tmp_path / "second"):
            assert os.environ["WANDB_SERVICE"] == known


def test_a_log_of_wandb_that_was_left_open_is_opened_again(tmp_path):
    left = LOGGERS["wandb"](tmp_path)
    left.log({"loss": 1.0}, 1)
    with LOGGERS["wandb"](tmp_path, resume=True) as logger:
        logger.log({"loss": 2.0}, 2)
    check_same(read_wandb(tmp_path), [(1, "loss", 1.0), (2, "loss", 2.0)])
    left.close()


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
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"mlflow.db", "mlflow.json"}


def test_files_that_say_where_a_log_is_are_whole_or_not_there(tmp_path):
    """A process killed while it wrote them leaves what it wrote beside."""
    (tmp_path / ".mlflow.json.part").write_text('{"uri": "sqli')
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / ".id.part").write_text("")
    for name in ("mlflow", "wandb"):
        with LOGGERS[name](tmp_path, resume=True) as logger:
            logger.log({"loss": 1.0}, 1)
    assert json.loads((tmp_path / "mlflow.json").read_text())["run"]
    check_same(read_mlflow(tmp_path), [(1, "loss", 1.0)])
    check_same(read_wandb(tmp_path), [(1, "loss", 1.0)])
    assert not list(tmp_path.rglob("*.part"))


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
