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
    """Workers of pools start in no time, forked; tests/lab/run/test_pool.py has them as users do."""
    from sfao.lab.run import pool
    from tests.fork_server import start_worker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "start_worker", start_worker)
        yield


# Under nohup a closed terminal is ignored, and by every process that is started from there.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Small tensors gain nothing from a second core, and threads that wait for work slow a busy machine down.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start
