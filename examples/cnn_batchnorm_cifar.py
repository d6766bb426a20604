"""A CNN with BatchNorm on three tasks of CIFAR-10, two classes each, with the same two outputs.

    python examples/cnn_batchnorm_cifar.py

BatchNorm's running mean and variance are no parameters: in training mode they follow the newest task, and no optimizer
can hold them. So beside SGD and SFAO there is SFAO with BatchNorm in eval mode after the first task, and SFAO with
GroupNorm, which has no running statistics.
"""

import warnings
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import sfao
from real_data import accuracy, read_stream, tell
from sfao.streams.stream import Stream

EPOCHS, BATCH, RATE = 4, 16, 0.02

Norm = Callable[[int], nn.Module]


def make_network(stream: Stream, norm: Norm) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(stream.input_shape[0], 16, 3, padding=1), norm(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), norm(32), nn.ReLU(), nn.AdaptiveMaxPool2d(4),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, stream.outputs),
    )  # fmt: skip


def hold_statistics(model: nn.Module) -> None:
    """Put BatchNorm, and it alone, into eval mode."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()


def learn(stream: Stream, kind: str, norm: Norm, hold: bool) -> tuple[list[float], list[float]]:
    """Learn the tasks in turn; return the accuracy on each when it was learnt, and at the end."""
    model = make_network(stream, norm)
    if kind == "SGD":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    else:
        optimizer = sfao.SFAO(sfao.layer_groups(model), lr=RATE)
    order, learnt = torch.Generator().manual_seed(0), []
    for task in stream:
        for _ in range(EPOCHS):
            for images, labels in task.train.batches(BATCH, order):
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
        if isinstance(optimizer, sfao.SFAO):
            optimizer.consolidate(model, task.train.batches(BATCH, order))
        if hold:
            hold_statistics(model)
        learnt.append(accuracy(model, task))
    return learnt, [accuracy(model, task) for task in stream]


def main() -> None:
    stream = read_stream("cifar10", classes=2, tasks=3, images=500)
    warnings.filterwarnings("ignore", "layers without an input space")  # the norms, which this example is about
    variants: dict[str, tuple[str, Norm, bool]] = {
        "SGD, BatchNorm": ("SGD", nn.BatchNorm2d, False),
        "SFAO, BatchNorm": ("SFAO", nn.BatchNorm2d, False),
        "SFAO, BatchNorm held": ("SFAO", nn.BatchNorm2d, True),
        "SFAO, GroupNorm": ("SFAO", lambda channels: nn.GroupNorm(4, channels), False),
    }
    for name, (kind, norm, hold) in variants.items():
        tell(name, *learn(stream, kind, norm, hold))


if __name__ == "__main__":
    main()
