"""Two tasks so small that a run on them takes no time: `tests.faults.tiny:TASKS`."""

import torch
from torch.utils.data import TensorDataset

NAME = "tests.faults.tiny:TASKS"


def _draw(seed: int) -> TensorDataset:
    images = torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(images, torch.arange(8) % 2)


TASKS = [(_draw(0), _draw(1)), (_draw(2), _draw(3))]
