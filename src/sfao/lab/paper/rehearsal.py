"""A rehearsal: a few steps of a run with little and with more in its memory, from which its whole time is predicted."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sfao.lab.data.dataset import Dataset
from sfao.lab.methods import Method
from sfao.lab.run.config import RunConfig
from sfao.lab.run.evaluation import BATCH
from sfao.lab.run.run import Run
from sfao.lab.streams.labelled_images import Batch, LabelledImages
from sfao.lab.streams.seeding import make_generator
from sfao.lab.streams.stream import Task

#: Seconds after which a step is timed no more, and steps that are timed at least.
PATIENCE, FEWEST = 0.15, 3
#: Examples of a rehearsed task: what the default memory looks at when a task ends; of a memory of directions more, so
#: that they are too many for a processor's cache, as they will be. Of a model with steps longer than SLOW seconds, a
#: few batches.
EXAMPLES, MORE_EXAMPLES, SLOW, FEW_BATCHES = 640, 2048, 0.3, 2
#: Seconds that a run takes beside its steps: to start, to make its stream, to save.
START = 2.0


@dataclass(frozen=True)
class Rehearsal:
    """The size of a run, and the times of its parts in seconds."""

    tasks: int
    #: Steps of a task, and examples that are evaluated after each.
    steps: int
    evaluated: int
    #: A step before anything is remembered, and one with so many directions in memory.
    first_step: float
    later_step: float
    held: int
    #: The time that one more direction adds to a step.
    per_direction: float
    #: The directions that a task adds, and that are held at most.
    added: int
    capacity: float
    end_of_task: float
    evaluation: float

    @property
    def seconds(self) -> float:
        """The time of the whole run."""
        training = sum(self.steps * self._step_of(task) for task in range(self.tasks))
        evaluating = (self.tasks + 1) * self.evaluated * self.evaluation
        return START + training + self.tasks * self.end_of_task + evaluating

    def _step_of(self, task: int) -> float:
        if task == 0:
            return self.first_step
        there = min(task * self.added, self.capacity)
        return max(self.later_step + self.per_direction * (there - self.held), self.first_step)


def choose_clock(device: str) -> Callable[[], float]:
    """Return the clock to time a part by: on a CPU, with one thread, what others do meanwhile does not count."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def rehearse(config: RunConfig, dataset: Dataset) -> Rehearsal:
    """Train on a few batches, end a task twice, and evaluate once; nothing is written."""
    run, clock = Run(config, dataset, Path()), choose_clock(config.device)
    method, task = run.method, run.stream.tasks[0]
    method.begin_task(0, task)
    first = _time_step(run, task)
    added, capacity = _count_directions(config, len(task.train))
    examples = MORE_EXAMPLES if added else EXAMPLES
    batches = FEW_BATCHES if first > SLOW else max(FEW_BATCHES, examples // config.batch_size)
    points, ends = [], []
    for number, share in enumerate((max(1, batches // 4), batches)):
        before = method.directions
        part = _shorten(task, share * config.batch_size)
        began = clock()
        method.end_task(number, part, make_generator(0, f"rehearsal {number}"))
        ends.append((clock() - began, len(part.train), method.directions - before))
        method.begin_task(number + 1, task)
        points.append((method.directions, _time_step(run, task)))
    (few, less), (many, more) = points
    seconds, looked_at, stored = ends[-1]
    return Rehearsal(
        tasks=len(run.stream),
        steps=config.epochs * -(-len(task.train) // config.batch_size),
        evaluated=sum(len(each.test) for each in run.stream.tasks),
        first_step=first,
        later_step=more,
        held=many,
        per_direction=max(0.0, (more - less) / (many - few)) if many > few else 0.0,
        added=added,
        capacity=capacity,
        end_of_task=seconds * _scale_end(method, stored, added, len(task.train) / looked_at),
        evaluation=_time_evaluation(run, task),
    )


def _time_step(run: Run, task: Task) -> float:
    """Return the seconds of a step: the mean of a few, after one that is not counted."""
    clock = choose_clock(run.config.device)
    taken, began = 0, 0.0
    size = run.config.batch_size
    for taken, (inputs, targets) in enumerate(_repeat(task.train, size, run.device)):
        if taken == 1:
            began = clock()
        elif taken > FEWEST and clock() - began > PATIENCE:
            break
        float(run.method.step(inputs, targets, task.outputs))
    return (clock() - began) / max(taken - 1, 1)


def _repeat(images: LabelledImages, size: int, device: torch.device) -> Iterator[Batch]:
    while True:
        yield from images.batches(size, device=device)


def _time_evaluation(run: Run, task: Task) -> float:
    """Return the seconds per example of a forward pass."""
    inputs, _ = next(task.test.batches(min(BATCH, 50 if run.config.device == "cpu" else BATCH), device=run.device))
    clock = choose_clock(run.config.device)
    run.model.eval()
    with torch.no_grad():
        run.model(inputs)
        began = clock()
        float(run.model(inputs).sum())
    return (clock() - began) / len(inputs)


def _shorten(task: Task, examples: int) -> Task:
    train = task.train
    return replace(task, train=replace(train, indices=train.indices[:examples], labels=train.labels[:examples]))


def _count_directions(config: RunConfig, examples: int) -> tuple[int, float]:
    """Return how many directions a task of so many examples adds, and how many are held at most."""
    options = config.options
    if "capacity" not in options and "directions" not in options:
        return 0, 0.0
    batches = -(-examples // config.batch_size)
    units = batches if options.get("target", "loss") == "loss" else examples
    capacity = options.get("capacity") or float("inf")
    return int(min(options.get("directions") or units, units, capacity)), capacity


def _scale_end(method: Method, stored: int, added: int, growth: float) -> float:
    """Return how much longer the end of a whole task takes: by the directions it stores, or by its examples.

    A gate that stores no directions looks at as many examples of any task.
    """
    if stored > 0:
        return added / stored
    return 1.0 if method.is_gated else growth
