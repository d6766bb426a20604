"""A CNN with BatchNorm on three tasks of CIFAR-10, two classes each, with the same two outputs.

    python examples/cnn_batchnorm_cifar.py

BatchNorm's running mean and variance are no parameters: in training mode they follow the newest task, and no optimizer
can hold them. From the first consolidation on, a DriftBound lets BatchNorm normalize with its running statistics, in
training too. Beside it: SGD, the paper's SFAO, and SFAO with GroupNorm, which has no running statistics.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import sfao
from real_data import accuracy, read_stream, tell
from sfao.lab.streams.stream import Stream

EPOCHS, BATCH, RATE = 4, 16, 0.02

Norm = Callable[[int], nn.Module]


def make_network(stream: Stream, norm: Norm) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(stream.input_shape[0], 16, 3, padding=1), norm(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), norm(32), nn.ReLU(), nn.AdaptiveMaxPool2d(4),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, stream.outputs),
    )  # fmt: skip


def learn(stream: Stream, kind: str, norm: Norm) -> tuple[list[float], list[float]]:
    """Learn the tasks in turn; return the accuracy on each when it was learned, and at the end."""
    model = make_network(stream, norm)
    if kind == "SFAO":
        memory: Any = sfao.SFAO(model, lr=RATE)
        optimizer: torch.optim.Optimizer = memory
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        memory = sfao.DriftBound(model).attach(optimizer) if kind == "DriftBound" else None
    order, learned = torch.Generator().manual_seed(0), []
    for task in stream:
        for _ in range(EPOCHS):
            for images, labels in task.train.batches(BATCH, order):
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
        if memory is not None:
            memory.consolidate(task.train.batches(BATCH, order), cross_entropy)
        learned.append(accuracy(model, task))
    return learned, [accuracy(model, task) for task in stream]


def main() -> None:
    stream = read_stream("cifar10", classes=2, tasks=3, images=500)
    # A norm has fewer parameters than SFAO stores directions.
    warnings.filterwarnings("ignore", "the directions of these layers span all")
    variants: dict[str, tuple[str, Norm]] = {
        "SGD, BatchNorm": ("SGD", nn.BatchNorm2d),
        "SFAO, BatchNorm": ("SFAO", nn.BatchNorm2d),
        "SFAO, GroupNorm": ("SFAO", lambda channels: nn.GroupNorm(4, channels)),
        "DriftBound, BatchNorm": ("DriftBound", nn.BatchNorm2d),
    }
    for name, (kind, norm) in variants.items():
        tell(name, *learn(stream, kind, norm))


if __name__ == "__main__":
    main()
