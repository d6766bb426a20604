"""Loggers: the CSV file, with it what all have in common, and what is said where a library is absent."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfao.checks import MissingLibrary
from sfao.drift_bound import DriftBound
from sfao.gate import Gate
from sfao.lab.loggers import LOGGERS, CSVLogger
from sfao.lab.run.compare import compare
from sfao.lab.run.config import configure
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.jobs import plan
from sfao.lab.run.loop import execute
from sfao.optimizer import SFAO

NAMES = st.text(alphabet="abc/,\"' é", min_size=1, max_size=5)
VALUES = st.dictionaries(NAMES, st.floats(allow_nan=False), max_size=4)


def read(folder: Path) -> list[tuple[int, str, float]]:
    with open(folder / "log.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "name", "value"]
    return [(int(step), name, float(value)) for step, name, value in rows]


def as_rows(lines):
    return [(step, name, value) for step, values in enumerate(lines) for name, value in values.items()]


@given(st.lists(VALUES, max_size=6))
def test_what_is_logged_is_read_back_to_the_bit(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("log")
    with CSVLogger(folder) as logger:
        for step, values in enumerate(lines):
            logger.log(values, step)
    assert read(folder) == as_rows(lines)


@given(st.data(), st.lists(VALUES, min_size=1, max_size=6))
def test_killed_anywhere_and_resumed_the_log_is_the_same(tmp_path_factory, data, lines):
    """However much of the file is there, and from whichever step up to the first that is lost the loop goes on."""
    whole, killed = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("killed")
    lengths = []
    for folder in (whole, killed):
        with CSVLogger(folder) as logger:
            for step, values in enumerate(lines):
                lengths.append((folder / "log.csv").stat().st_size)
                logger.log(values, step)
    restart = data.draw(st.integers(0, len(lines) - 1))
    length = data.draw(st.integers(lengths[restart], (whole / "log.csv").stat().st_size))
    with open(killed / "log.csv", "r+b") as file:
        file.truncate(length)
    with CSVLogger(killed, resume=True) as logger:
        for step, values in enumerate(lines[restart:], start=restart):
            logger.log(values, step)
    assert sorted(read(killed)) == sorted(as_rows(lines))


def test_values_are_in_the_file_before_the_logger_is_closed(tmp_path):
    with CSVLogger(tmp_path / "new" / "folder") as logger:
        logger.log({"layers/fc1/kept": torch.tensor(0.5), "loss": 2}, 7)
        assert read(tmp_path / "new" / "folder") == [(7, "layers/fc1/kept", 0.5), (7, "loss", 2.0)]


def test_several_calls_may_log_at_one_step(tmp_path):
    with CSVLogger(tmp_path) as logger:
        logger.log({"loss": 1.0}, 3)
        logger.log({"kept": 0.5}, 3)
    assert read(tmp_path) == [(3, "loss", 1.0), (3, "kept", 0.5)]


@pytest.mark.parametrize(
    ("values", "step", "message"),
    [
        ({"loss": 1.0}, 4, "`step` must not go back, got 4 after 5"),
        ({"other": 1.0}, 4, "`step` must not go back, got 4 after 5"),
        ({"loss": 1.0}, 5, "`values` must have one value per name and step, got 'loss' at step 5 again"),
        ({"loss": 1.0}, -1, "`step` must be a whole number of at least 0, got -1"),
        ({"loss": 1.0}, 5.5, "`step` must be a whole number of at least 0, got 5.5"),
        ({"loss": 1.0}, True, "`step` must be a whole number of at least 0, got True"),
        ({"lo\nss": 1.0}, 6, "`values` must have names of one line of text, got 'lo\\nss'"),
        ({1: 1.0}, 6, "`values` must have names of one line of text, got 1"),
        ({"loss": "much"}, 6, "`values` must be numbers, got 'much' for 'loss'"),
        ({"loss": None}, 6, "`values` must be numbers, got None for 'loss'"),
        ({"fine": 1.0, "loss": torch.ones(2)}, 6, "`values` must be numbers, got tensor([1., 1.]) for 'loss'"),
    ],
)
def test_bad_values_are_refused_and_nothing_is_logged(tmp_path, values, step, message):
    with CSVLogger(tmp_path) as logger:
        logger.log({"loss": 0.0}, 5)
        with pytest.raises(ValueError) as caught:  # noqa: PT011, the whole message is compared
            logger.log(values, step)
        assert str(caught.value) == message
        logger.log({"loss": 0.5, "fine": 1.0}, 6)
    assert read(tmp_path) == [(5, "loss", 0.0), (6, "loss", 0.5), (6, "fine", 1.0)]


def test_a_log_is_not_mixed_with_another(tmp_path):
    with CSVLogger(tmp_path) as logger:
        logger.log({"loss": 1.0}, 1)
    with pytest.raises(ValueError, match=r"`folder` must hold no log yet, but .*log\.csv is there; `resume=True`"):
        CSVLogger(tmp_path)
    assert read(tmp_path) == [(1, "loss", 1.0)]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "step,name,value\nx,loss,1\n", "step,name,value\n1,loss\n", "\xff\n"])
def test_another_file_of_that_name_is_refused_and_stays(tmp_path, text):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(ValueError, match=r"log\.csv must be a log of steps, names and values"):
        CSVLogger(tmp_path, resume=True)
    assert (tmp_path / "log.csv").read_text() == text


@pytest.mark.parametrize("kind", [SFAO, Gate, DriftBound])
def test_the_telemetry_goes_from_a_loop_into_a_log(tmp_path, kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    task = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(4)]
    loss = nn.CrossEntropyLoss()
    if kind is SFAO:
        keeper = optimizer = SFAO(model, lr=0.1)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        keeper = kind(model).attach(optimizer)
    keeper.consolidate(task, loss)
    with CSVLogger(tmp_path) as logger:
        for step, (x, y) in enumerate(task, start=1):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            logger.log(keeper.telemetry(), step)
    last = {name: value for step, name, value in read(tmp_path) if step == 4}
    assert last == keeper.telemetry()
    assert last["memory_bytes"] == keeper.memory_bytes > 0
    assert "layers/0/drift" in last if kind is DriftBound else "layers/0/cosine" in last


# -- Libraries --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["mlflow", "tensorboard", "wandb"])
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
