"""Accuracy on every task of a stream."""

from collections.abc import Iterable

import torch
from torch import nn

from sfao.lab.methods import Method
from sfao.lab.run.errors import Diverged
from sfao.lab.streams.labelled_images import LabelledImages
from sfao.lab.streams.stream import Task

BATCH = 1000


@torch.no_grad()
def evaluate(method: Method, tasks: Iterable[Task], on: str, device: torch.device) -> list[float]:
    """Return the accuracy of a method's model on the `test` or `validation` part of every task, counted from 0.

    Raises Diverged when an output is not finite, because argmax would return a class nevertheless.
    """
    was_training = method.model.training
    method.model.eval()
    found = []
    for number, task in enumerate(tasks):
        with method.model_for_task(number) as model:
            found.append(_measure_accuracy(model, task, _choose_images(task, on), device))
    method.model.train(was_training)
    return found


def _measure_accuracy(model: nn.Module, task: Task, images: LabelledImages, device: torch.device) -> float:
    correct = torch.zeros((), dtype=torch.int64, device=device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    for inputs, targets in images.batches(BATCH, device=device):
        logits = model(inputs)[:, task.outputs]
        finite &= logits.isfinite().all()
        correct += (logits.argmax(1) == targets).sum()
    if not finite:
        raise Diverged(f"the model gives outputs that are no numbers on task {task.name!r}")
    return int(correct) / len(images)


def _choose_images(task: Task, on: str) -> LabelledImages:
    """Return the `test` or `validation` part of a task."""
    images = task.test if on == "test" else task.validation
    if images is None:
        raise ValueError(f"task {task.name!r} holds nothing out: `validation` must be above 0")
    return images
