"""The batches of an epoch, in an order that depends on seed, task and epoch alone."""

from collections.abc import Iterator

import torch
from torch import Tensor

from sfao.lab.streams.seeding import make_generator
from sfao.lab.streams.stream import Task

#: Images, labels, and the outputs that the loss reads.
TaskBatch = tuple[Tensor, Tensor, slice]


def steps_per_epoch(tasks: list[Task], batch_size: int) -> int:
    """Return the number of batches in one pass over these tasks."""
    return sum(-(-len(task.train) // batch_size) for task in tasks)


def epoch_batches(
    tasks: list[Task], batch_size: int, seed: int, label: str, device: torch.device, start: int
) -> Iterator[TaskBatch]:
    """Yield the batches of one pass over the training parts of the tasks, from batch `start` on, each of one task.

    The order depends on the arguments alone, so a run that resumes in the middle needs no state for it.
    """
    passes = [make_generator(seed, f"{label}, task {number}") for number in range(len(tasks))]
    turns = torch.cat([torch.full((steps_per_epoch([task], batch_size),), n) for n, task in enumerate(tasks)])
    if len(tasks) > 1:
        turns = turns[torch.randperm(len(turns), generator=make_generator(seed, f"{label}, turns"))]
    done = torch.bincount(turns[:start], minlength=len(tasks)).tolist()
    batches = [
        task.train.batches(batch_size, generator, device, start=skipped)
        for task, generator, skipped in zip(tasks, passes, done, strict=True)
    ]
    for turn in turns[start:].tolist():
        inputs, targets = next(batches[turn])
        yield inputs, targets, tasks[turn].outputs
