"""A run whose gate is on a device, where a gradient that is not finite is told of when somebody looks."""

import pytest

from sfao.experiment.config import configure
from sfao.experiment.run import Run
from sfao.optim import _gate_path as gate_path
from tests.on_device import DEVICE

pytestmark = pytest.mark.usefixtures("_on_device")


def run(digits, folder, **settings):
    folder.mkdir()
    fast = {"epochs": 1, "model.hidden": 8, "tasks": 2, "batch_size": 400, "device": DEVICE.type, **settings}
    return Run(configure("split-mnist-5k", "sfao", settings=fast), digits, folder).execute()


@pytest.mark.parametrize("batch_size", [80, 400])  # with the larger one, a task is over before a line of telemetry
def test_a_diverged_run_says_so_and_leaves_a_record(tmp_path, digits, batch_size):
    record = run(digits, tmp_path / "run", lr=1e30, batch_size=batch_size)
    assert record.status == "diverged"
    assert "the loss was" in record.error or "must be finite" in record.error
    assert all(1 <= counts["accept"] < record.steps for counts in record.decisions.values())


def test_the_record_is_that_of_a_run_on_the_host(tmp_path, digits, monkeypatch):
    on_device = run(digits, tmp_path / "device", lr=0.05)
    monkeypatch.setattr(gate_path, "DEVICES", set())
    on_host = run(digits, tmp_path / "host", lr=0.05)
    assert on_device.status == "done"
    assert on_device.decisions == on_host.decisions
    assert sum(counts["accept"] for counts in on_device.decisions.values()) < 2 * on_device.steps
    assert on_device.accuracy_matrix == on_host.accuracy_matrix
