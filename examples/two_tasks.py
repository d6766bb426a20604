"""Two tasks, one after the other: what SGD forgets, and what SFAO and DriftBound keep. Takes half a minute.

    python examples/two_tasks.py

A small network learns to tell 0 from 1, then, without seeing those again, 2 from 3, with the same two
outputs. The data are real digits in this package; every number is the mean over seeds.
"""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

import sfao

SEEDS = range(5)
EPOCHS, BATCH, TRAIN_A_CLASS, LR = 5, 10, 400, 0.05

Part = tuple[Tensor, Tensor]
loss = nn.CrossEntropyLoss()
torch.set_num_threads(1)  # small tensors gain nothing from more


@dataclass
class Task:
    train: Part
    test: Part

    def batches(self) -> list[Part]:
        """The training part in a random order."""
        images, labels = self.train
        return [(images[some], labels[some]) for some in torch.randperm(len(labels)).split(BATCH)]


def digits() -> Part:
    """The 5,000 MNIST digits in this package, 500 a class, read without the extra `lab`."""
    packed = files("sfao.lab.data").joinpath("mnist-5k-images-idx3-ubyte.gz").read_bytes()
    pixels = np.frombuffer(gzip.decompress(packed), np.uint8, offset=16).reshape(5000, 784)
    return torch.from_numpy(pixels.astype(np.float32) / 255), torch.arange(10).repeat_interleave(500)


def task(images: Tensor, labels: Tensor, classes: tuple[int, int]) -> Task:
    """The digits of two classes, called 0 and 1."""
    by_class = [images[labels == one] for one in classes]

    def part(rows: slice) -> Part:
        chosen = [own[rows] for own in by_class]
        return torch.cat(chosen), torch.cat([torch.full((len(own),), n) for n, own in enumerate(chosen)])

    return Task(train=part(slice(TRAIN_A_CLASS)), test=part(slice(TRAIN_A_CLASS, None)))


def accuracy(model: nn.Module, part: Part) -> float:
    with torch.no_grad():
        return float((model(part[0]).argmax(1) == part[1]).float().mean())


#: Makes an optimizer and what consolidates: SFAO itself, a bound, or nothing.
Make = Callable[[nn.Module], tuple[torch.optim.Optimizer, Any]]


def make_sgd(model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
    return torch.optim.SGD(model.parameters(), lr=LR), None


def make_sfao(model: nn.Module, **options: Any) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = sfao.SFAO(model, lr=LR, **options)
    return optimizer, optimizer


def make_bounded(model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    return optimizer, sfao.DriftBound(model).attach(optimizer)


def learn(make: Make, tasks: list[Task], seed: int) -> list[float]:
    """Learn the tasks in turn. Returns the accuracy on the first after it, then on each at the end, and MB held."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 2))
    optimizer, memory = make(model)
    first = 0.0
    for number, current in enumerate(tasks):
        for _ in range(EPOCHS):
            for images, labels in current.batches():
                optimizer.zero_grad()
                loss(model(images), labels).backward()
                optimizer.step()
        if memory is not None:
            memory.consolidate(current.batches(), loss)
        if number == 0:
            first = accuracy(model, current.test)
    held = 0.0 if memory is None else memory.memory_bytes / 1e6
    return [first, *(accuracy(model, each.test) for each in tasks), held]


def main() -> None:
    images, labels = digits()
    tasks = [task(images, labels, (0, 1)), task(images, labels, (2, 3))]
    optimizers: dict[str, Make] = {
        "SGD": make_sgd,
        "SFAO": make_sfao,
        "SFAO, factored": lambda model: make_sfao(model, storage="factored", rank=4),
        "DriftBound": make_bounded,
    }
    runs = [(name, seed) for name in optimizers for seed in SEEDS]
    results: dict[str, list[list[float]]] = {name: [] for name in optimizers}
    console = Console()
    for name, seed in track(runs, description="learning 0/1, then 2/3", console=console, transient=True):
        results[name].append(learn(optimizers[name], tasks, seed))

    table = Table(title=f"Accuracy on real digits, mean of {len(SEEDS)} seeds")
    table.add_column("")
    for heading in ("0/1 after 0/1", "0/1 after 2/3", "forgotten", "2/3", "MB held"):
        table.add_column(heading, justify="right")
    for name, rows in results.items():
        before, after, second, held = (fmean(column) for column in zip(*rows, strict=True))
        table.add_row(name, f"{before:.3f}", f"{after:.3f}", f"{before - after:.3f}", f"{second:.3f}", f"{held:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
