"""A head for every task, added when the task comes: four tasks of five classes of CIFAR-100, one shared body.

    python examples/head_per_task.py

No task can touch the head of another, but all of them move the body, and with it the inputs of old heads. SFAO projects
the gradients of the body off those of past tasks; DriftBound keeps the outputs of its layers within a tolerance. A head
is free while its own task is learned, because nothing is stored of it yet.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import sfao
from real_data import accuracy, read_stream, tell
from sfao.lab.streams.labelled_images import Batch
from sfao.lab.streams.stream import Stream

EPOCHS, BATCH, RATE = 8, 16, 0.02


class ManyHeads(nn.Module):
    """A small convolutional body, and as many heads as there have been tasks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(4),
            nn.Flatten(), nn.Linear(512, 100), nn.ReLU(),
        )  # fmt: skip
        self.heads = nn.ModuleList()

    def forward(self, images: Tensor, task: int) -> Tensor:
        answer: Tensor = self.heads[task](self.body(images))
        return answer


def learn(stream: Stream, kind: str, classes: int) -> tuple[list[float], list[float]]:
    """Learn the tasks in turn; return the accuracy on each when it was learned, and at the end."""
    torch.manual_seed(0)
    model = ManyHeads(stream.input_shape[0])
    if kind == "SFAO":
        memory: Any = sfao.SFAO(model, lr=RATE)
        optimizer: torch.optim.Optimizer = memory
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        memory = sfao.DriftBound(model).attach(optimizer) if kind == "DriftBound" else None
    order, learned = torch.Generator().manual_seed(0), []
    for number, task in enumerate(stream):
        model.heads.append(nn.Linear(100, classes))
        # Param groups of layer_groups have the names of layers; the new head is the last one.
        optimizer.add_param_group(sfao.layer_groups(model)[-1])
        for _ in range(EPOCHS):
            for images, labels in task.train.batches(BATCH, order):
                optimizer.zero_grad()
                cross_entropy(model(images, number), labels).backward()
                optimizer.step()
        if memory is not None:

            def objective(model: nn.Module, batch: Batch, number: int = number) -> Tensor:
                return cross_entropy(model(batch[0], number), batch[1])

            memory.consolidate(task.train.batches(BATCH, order), objective=objective)
        learned.append(measure(model, stream, number))
    return learned, [measure(model, stream, number) for number in range(len(stream))]


def measure(model: ManyHeads, stream: Stream, number: int) -> float:
    """Return the accuracy of a task's own head."""
    model.eval()
    found = accuracy(lambda images: model(images, number), stream.tasks[number])
    model.train()
    return found


def main() -> None:
    classes = 5
    stream = read_stream("cifar100", classes=classes, tasks=4, images=200)
    for kind in ("SGD", "SFAO", "DriftBound"):
        tell(kind, *learn(stream, kind, classes))


if __name__ == "__main__":
    main()
