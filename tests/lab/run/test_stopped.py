"""A run that is stopped, anywhere, and resumed: it ends as one that nothing stopped, bit for bit."""

from functools import cache, partial

import pytest
import torch

from sfao.lab.methods import METHODS
from sfao.lab.models import MODELS, wide_resnet
from sfao.lab.run.config import configure
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.loop import Run, execute
from tests.lab.run.test_run import StopAt, config


@pytest.fixture(scope="module")
def run_whole(tmp_path_factory, small_digits):
    """(record of a run that nothing stops, its folder), each made once"""

    @cache
    def run(method):
        folder = tmp_path_factory.mktemp("whole")
        return Run(config(method), small_digits, folder).execute(), folder

    return run


#: Steps 50 and 100 end the tasks of these runs (and 150 that of joint).
STOPS = (1, 37, 38, 50, 51, 99, 100)
#: A bound stops only after one of its projections, at steps 58, 66, ... of the second task.
STOPS_OF = {"drift-bound": (1, 37, 38, 50, 51, 67, 90)}


@pytest.mark.parametrize(
    ("method", "stops"),
    [
        *((method, STOPS_OF.get(method, STOPS)) for method in METHODS),
        *(
            pytest.param(method, stops, marks=pytest.mark.soak)
            for method in METHODS
            if method not in STOPS_OF
            for stops in ((1,), (37, 38), (50,), (51, 99), (99, 100))
        ),
    ],
)
@pytest.mark.usefixtures("_small_digits")
def test_stopped_anywhere_it_ends_bit_for_bit_the_same(tmp_path, run_whole, method, stops):
    whole, whole_folder = run_whole(method)
    folder = tmp_path / "parts"
    for stop in stops:
        with pytest.raises(Interrupted):
            execute(config(method), folder, resume=True, stopping=StopAt(folder, stop))
    record = execute(config(method), folder, resume=True)
    assert record.weights_sha256 == whole.weights_sha256
    assert record.accuracy_matrix == whole.accuracy_matrix
    assert record.metrics == whole.metrics
    assert record.decisions == whole.decisions
    assert record.memory_bytes == whole.memory_bytes
    assert record.steps == whole.steps
    whole_lines, lines = ((f / "steps.jsonl").read_text() for f in (whole_folder, folder))
    assert lines == whole_lines


@pytest.fixture
def dropout_config(monkeypatch, _small_digits):
    """A wide residual network small enough to train here, with dropout: the one thing that draws from torch itself."""
    monkeypatch.setitem(MODELS, "wrn-28-10", partial(small_wide_resnet, depth=10, widen=1))
    return configure(
        "split-mnist-5k",
        "agem",
        settings={
            "fraction": 0.05,
            "epochs": 1,
            "batch_size": 20,
            "tasks": 2,
            "model.name": "wrn-28-10",
            "model.dropout": 0.5,
        },
    )


def small_wide_resnet(input_shape, outputs, dropout, *, depth, widen):
    return wide_resnet(input_shape, outputs, depth, widen, dropout)


def test_dropout_is_decided_by_the_seed_and_survives_a_stop(tmp_path, dropout_config):
    whole = execute(dropout_config, tmp_path / "whole")
    torch.rand(7)  # whatever else drew in this process, another run of the same worker say
    before = torch.get_rng_state()
    folder = tmp_path / "parts"
    with pytest.raises(Interrupted):
        execute(dropout_config, folder, stopping=StopAt(folder, 7))
    assert execute(dropout_config, folder, resume=True).weights_sha256 == whole.weights_sha256
    assert torch.equal(torch.get_rng_state(), before)
