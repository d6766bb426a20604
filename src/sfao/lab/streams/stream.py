"""Sequences of tasks, each with the outputs of the model that its loss and its accuracy use; and benchmarks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfao.lab.data.dataset import Dataset, load_dataset
from sfao.lab.data.sets import get_description
from sfao.lab.streams.labelled_images import LabelledImages
from sfao.lab.streams.seeding import make_generator

SCENARIOS = ("domain", "task", "class")


@dataclass(frozen=True, eq=False)
class Task:
    """One task. Training and evaluation use `model(x)[:, task.outputs]`; label 0 is its first column."""

    name: str
    #: The classes of the data set, in the order of their labels.
    classes: tuple[int, ...]
    outputs: slice
    train: LabelledImages
    #: Held out of the training images, for tuning; None if nothing was held out.
    validation: LabelledImages | None
    test: LabelledImages


@dataclass(frozen=True, eq=False)
class Stream:
    """Tasks in the order they are learned, for a model with `outputs` outputs."""

    name: str
    scenario: str
    tasks: tuple[Task, ...]
    outputs: int
    input_shape: tuple[int, ...]
    #: The number, from 0, that each task has if no order is given.
    order: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def count_training_examples(self) -> int:
        """Return the number of training examples, each counted once however many tasks it is in."""
        return len(torch.cat([task.train.indices for task in self]).unique())


def count_outputs(scenario: str, tasks: int, classes: int) -> int:
    """Return the number of outputs of a model for so many tasks of so many classes each."""
    return classes if scenario == "domain" else tasks * classes


def select_outputs(scenario: str, task: int, tasks: int, classes: int) -> slice:
    """Return the outputs of the model that a task uses.

    `task`: its own. `domain`: all of them, shared. `class`: all of them from the first task on, so that every cell of
    the accuracy matrix means the same.
    """
    if scenario == "task":
        return slice(task * classes, (task + 1) * classes)
    return slice(0, count_outputs(scenario, tasks, classes))


def make_task(
    dataset: Dataset,
    name: str,
    outputs: slice,
    label_of: Tensor,
    validation_mask: Tensor,
    permutation: Tensor | None = None,
) -> Task:
    """Return a task of the classes whose label in `label_of` is not negative; the mask is over training examples."""

    def select(kind: str, images: Tensor, classes: Tensor, chosen: Tensor | None = None) -> LabelledImages:
        labels = label_of[classes]
        members = labels >= 0 if chosen is None else (labels >= 0) & chosen
        indices = members.nonzero().flatten()
        if not len(indices):
            raise ValueError(f"task {name!r} of {dataset.name!r} has no {kind} examples")
        return LabelledImages(images, indices, labels[indices], dataset.mean, dataset.std, permutation)

    train = select("training", dataset.train_images, dataset.train_labels, ~validation_mask)
    validation = None
    if validation_mask.any():
        validation = select("validation", dataset.train_images, dataset.train_labels, validation_mask)
    test = select("test", dataset.test_images, dataset.test_labels)
    classes = (label_of >= 0).nonzero().flatten().tolist()
    return Task(name, tuple(sorted(classes, key=label_of.__getitem__)), outputs, train, validation, test)


def order_tasks(order: str | Sequence[int] | None, tasks: int, seed: int) -> tuple[int, ...]:
    """Return the places of the tasks: as they are, "random", or given, as numbers or as "2,0,1"."""
    if order is None:
        return tuple(range(tasks))
    if order == "random":
        return tuple(torch.randperm(tasks, generator=make_generator(seed, "task order")).tolist())
    try:
        places = tuple(map(int, order.split(",") if isinstance(order, str) else order))
    except (TypeError, ValueError):
        places = ()
    if sorted(places) != list(range(tasks)):
        raise ValueError(f"`order` must be 'random' or name each task from 0 to {tasks - 1} once, got {order!r}")
    return places


@dataclass(frozen=True)
class TaskSplit:
    """A way to split a data set into tasks; `make` has the signature of `sfao.lab.streams.split.split`."""

    name: str
    make: Callable[..., Stream]


@dataclass(frozen=True)
class Benchmark:
    """A data set by name, split into a number of tasks."""

    dataset: str
    split: TaskSplit
    #: None if the data tell it.
    tasks: int | None
    #: The defaults of a run; they name at least the model.
    settings: dict[str, Any]

    def load(self, data_root: Path | None = None) -> Dataset:
        """Return the data, from `data_root` if they are files of a publisher."""
        return load_dataset(self.dataset, data_root)

    def make_stream(self, dataset: Dataset, *, tasks: int | None = None, **options: Any) -> Stream:
        """Return the tasks of a data set that was loaded; `options` are those of `split`."""
        return self.split.make(dataset, tasks=tasks or self.tasks, **options)

    def count_training_examples(self) -> int:
        return get_description(self.dataset).train
