import os
import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# Timing is no property of the code; derandomised, so that a failure is there again on the next run.
settings.register_profile("sfao", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("sfao")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Workers of pools start in no time, forked; tests/experiment/test_pool.py has them as users do."""
    from sfao.experiment import pool
    from tests.fork_server import start_worker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "start_worker", start_worker)
        yield


@pytest.fixture
def _on_device() -> Iterator[None]:
    """Gradients on `tests.on_device.DEVICE` are gated there, interpreted where that is the CPU."""
    from tests import on_device

    with on_device.interpreted(), on_device.gated_on(on_device.DEVICE.type):
        yield


@pytest.fixture
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles so small that little layers have several, in every dimension."""
    from sfao.gating._device import launches

    for name in (
        "DOT_ROWS",
        "DOT_COLUMNS",
        "DOT_FACTORS",
        "UPDATE_ROWS",
        "UPDATE_COLUMNS",
        "LEFT_ROWS",
        "LEFT_FACTORS",
    ):
        monkeypatch.setattr(launches, name, 16)
    for name, size in {"DENSE_COLUMNS": 256, "DENSE_FACTORS": 8, "GATHERED_TILES": 2, "ENTRIES": 64}.items():
        monkeypatch.setattr(launches, name, size)


# Under nohup a closed terminal is ignored, and by every process that is started from there.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Small tensors gain nothing from a second core, and threads that wait for work slow a busy machine down.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start
