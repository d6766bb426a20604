"""The CSV logger, and with it what all loggers have in common."""

import csv
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.loggers import CSVLogger

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
    with pytest.raises(ValueError, match=r"log\.csv must be a log of steps, names and values, but line \d is"):
        CSVLogger(tmp_path, resume=True)
    assert (tmp_path / "log.csv").read_text() == text
