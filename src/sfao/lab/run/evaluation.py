"""Accuracy and loss on the tasks of a stream."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.nn.functional import cross_entropy

from sfao.lab.methods import Method
from sfao.lab.run.errors import Diverged
from sfao.lab.streams.labelled_images import LabelledImages
from sfao.lab.streams.stream import Task

BATCH = 1000


@torch.no_grad()
def evaluate(method: Method, tasks: Iterable[Task], on: str, device: torch.device) -> list[float]:
    """Return the accuracy of a method's model on the `test` or `validation` part of every task, counted from 0.

    Raises Diverged if an output is not finite, because argmax would return a class nevertheless.
    """
    found = []
    with _evaluating(method):
        for number, task in enumerate(tasks):
            images = _choose_images(task, on)
            correct = torch.zeros((), dtype=torch.int64, device=device)
            finite = torch.ones((), dtype=torch.bool, device=device)
            with method.model_for_task(number) as model:
                for inputs, targets in images.batches(BATCH, device=device):
                    logits = model(inputs)[:, task.outputs]
                    finite &= logits.isfinite().all()
                    correct += (logits.argmax(1) == targets).sum()
            if not finite:
                raise Diverged(f"the model gives outputs that are no numbers on task {task.name!r}")
            found.append(int(correct) / len(images))
    return found


@torch.no_grad()
def validation_loss(method: Method, tasks: Sequence[Task], first: int, device: torch.device) -> float:
    """Return the mean loss on the validation data of these tasks, of which the first has the number `first`."""
    total, count = torch.zeros((), dtype=torch.float64, device=device), 0
    with _evaluating(method):
        for number, task in enumerate(tasks, first):
            images = _choose_images(task, "validation")
            with method.model_for_task(number) as model:
                for inputs, targets in images.batches(BATCH, device=device):
                    total += cross_entropy(model(inputs)[:, task.outputs], targets, reduction="sum")
            count += len(images)
    return float(total) / count


@contextmanager
def _evaluating(method: Method) -> Iterator[None]:
    was_training = method.model.training
    method.model.eval()
    yield
    method.model.train(was_training)


def _choose_images(task: Task, on: str) -> LabelledImages:
    """Return the `test` or `validation` part of a task."""
    images = task.test if on == "test" else task.validation
    if images is None:
        raise ValueError(f"task {task.name!r} holds nothing out: `validation` must be above 0")
    return images
