"""Loggers whose library is absent, as here, where the extras are not installed: what they say, and what they leave."""

import subprocess
import sys

import pytest

from sfao.lab.loggers import LOGGERS, MissingLibrary
from sfao.lab.run.compare import compare
from sfao.lab.run.config import configure
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.jobs import plan
from sfao.lab.run.loop import execute

OTHERS = sorted(LOGGERS.keys() - {"csv"})


@pytest.fixture(params=OTHERS)
def absent(request, monkeypatch) -> str:
    """The name of a logger, with its libraries hidden wherever they happen to be installed."""
    for library in LOGGERS[request.param].libraries:
        monkeypatch.setitem(sys.modules, library, None)
    return request.param


def test_the_logger_says_what_is_missing_and_how_to_get_it(tmp_path, absent):
    with pytest.raises(MissingLibrary) as caught:
        LOGGERS[absent](tmp_path / "log")
    assert str(caught.value).startswith(f"the logger {absent!r} needs {absent}, which is not installed; ")
    assert str(caught.value).endswith(f"; pip install 'sfao[{absent}]' brings it")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_run_and_a_comparison_say_so_before_anything_is_made(tmp_path, absent):
    with pytest.raises(MissingLibrary):
        execute(configure("split-mnist-5k", "sgd"), tmp_path / "run", log=["csv", absent])
    with pytest.raises(MissingLibrary):
        compare(plan("split-mnist-5k", ["sgd"], [0], tmp_path / "runs"), log=[absent])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (["tensorbord"], "`log` must be one of csv, tensorboard, wandb, mlflow, got 'tensorbord' (did you mean"),
        (["csv,csv"], "`log` must name each logger once, got 'csv' twice"),
        (["csv", "csv"], "`log` must name each logger once, got 'csv' twice"),
        (["csv,"], "`log` must be one of csv, tensorboard, wandb, mlflow, got ''"),
    ],
)
def test_names_that_are_refused(tmp_path, log, message):
    with pytest.raises(ConfigError) as caught:
        execute(configure("split-mnist-5k", "sgd"), tmp_path / "run", log=log)
    assert str(caught.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_no_library_is_imported_before_it_is_used():
    code = "import sys, sfao.lab.loggers; print({'torch', 'tensorboard', 'wandb', 'mlflow'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
