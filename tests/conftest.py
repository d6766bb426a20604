import pytest
import torch
from hypothesis import settings

# Timing is no property of the code; derandomised, so that a failure is there again on the next run.
settings.register_profile("sfao", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("sfao")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# Small tensors gain nothing from a second core, and threads that wait for work slow a busy machine down.
torch.set_num_threads(1)
