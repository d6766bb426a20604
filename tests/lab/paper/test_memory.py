"""Table 8, on the real digits where $SFAO_DATA has them: what the released preset would hold, to the digit."""

import os
from pathlib import Path

import pytest

from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.root import VARIABLE
from sfao.lab.paper.series import table_series
from sfao.lab.run.loop import Run
from sfao.lab.streams.seeding import make_generator

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"${VARIABLE} names no data")


@pytest.fixture(scope="module")
def digits():
    dataset = load_dataset("mnist")
    if not dataset.complete:
        pytest.skip("MNIST is not whole")
    return dataset


def configured(row, column, digits):
    return Run(table_series(8, "released")[row, column].config(), digits, Path("none"))


@pytest.mark.parametrize(
    ("row", "directions", "megabytes"),
    [
        ("Split MNIST", 1876, "1441.82"),
        ("Permuted MNIST (3)", 5625, "4367.28"),
        ("Permuted MNIST (5)", 9375, "7278.80"),
    ],
)
def test_ogd_stores_every_batch(row, directions, megabytes, digits):
    """The last one is the paper's slip: it prints 7278.00."""
    run = configured(row, "OGD", digits)
    assert run.config.options["directions"] is None
    batches = sum(-(-len(task.train) // run.config.batch_size) for task in run.stream)
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    assert batches == directions
    assert f"{batches * parameters * 4 / 2**20:.2f}" == megabytes


@pytest.mark.parametrize(("row", "megabytes"), [("Split MNIST", "153.71"), ("Permuted MNIST (3)", "155.28")])
def test_sfao_stores_200_and_that_is_what_it_holds(row, megabytes, digits):
    run = configured(row, "SFAO", digits)
    task = run.stream.tasks[0]
    run.method.end_task(0, task, make_generator(0, "test"))
    assert run.method.directions == 200
    assert f"{run.method.memory_bytes / 2**20:.2f}" == megabytes
