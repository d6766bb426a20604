"""Benchmarks of one's own tasks: data sets of torch, cut as they are given."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from sfao.checks import check_choice
from sfao.lab.data.dataset import Dataset
from sfao.lab.data.errors import DataError
from sfao.lab.names import read_parameters
from sfao.lab.streams.benchmark import Benchmark, Cut
from sfao.lab.streams.own_data import OwnData, read_tasks
from sfao.lab.streams.stream import SCENARIOS, Stream, make_task, order_tasks
from sfao.lab.streams.validation import draw_validation

RULE = "must be a list or dict of (train, test) pairs of data sets, or a function of no arguments that returns one"
#: The model where none is named: it takes inputs of any shape.
SETTINGS = {"model": {"name": "mlp"}}


def cut_own(
    dataset: Dataset,
    *,
    tasks: int | None = None,
    scenario: str = "domain",
    seed: int = 0,
    order: str | Sequence[int] | None = None,
    validation: float = 0.0,
) -> Stream:
    """Make the stream of one's own tasks, of the first `tasks` of them where it is given.

    `class`: labels are as they are, and all tasks share all outputs. `task`: every task has outputs of its own, one for
    each of its labels in their order. `domain`: the same labels, but all tasks share the outputs.
    """
    if not isinstance(dataset, OwnData):
        raise TypeError(f"a stream of one's own needs its own data, got {type(dataset).__name__}")
    check_choice("scenario", scenario, SCENARIOS)
    held = len(dataset.task_names)
    count = held if tasks is None else tasks
    if not 1 <= count <= held:
        raise ValueError(f"`tasks` must be from 1 to the {held} that there are, got {count}")
    labels = [_find_labels(dataset, number) for number in range(count)]
    heads = _make_heads(scenario, labels, dataset.task_names)
    mask = draw_validation(dataset.train_labels, validation, seed)
    built = []
    for number, (name, own, head) in enumerate(zip(dataset.task_names, labels, heads, strict=False)):
        label_of = torch.full((dataset.classes,), -1)
        for place, label in enumerate(own):
            joint = number * len(dataset.labels) + dataset.labels.index(label)
            label_of[joint] = label if scenario == "class" else place
        built.append(make_task(dataset, name, head, label_of, mask))
    places = order_tasks(order, count, seed)
    return Stream(
        name=dataset.name,
        scenario=scenario,
        tasks=tuple(built[place] for place in places),
        outputs=max(head.stop for head in heads),
        input_shape=tuple(dataset.train_images.shape[1:]),
        order=tuple(places),
    )


OWN = Cut("own", cut_own)


@dataclass(frozen=True)
class OwnBenchmark(Benchmark):
    """Tasks of one's own, read when they are first needed; the data sets are called `dataset` in records."""

    cut: Cut = OWN
    tasks: int | None = None
    settings: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    make: Callable[[], Any] = list

    @cached_property
    def data(self) -> OwnData:
        try:
            return read_tasks(self.make(), self.dataset)
        except DataError:
            raise
        except Exception as error:  # code of one's own may fail in any way
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise DataError(f"`stream` {self.dataset!r} cannot be read: {said}") from error

    def load(self, data_root: Path | None = None) -> Dataset:
        return self.data

    def count_training_examples(self) -> int:
        return len(self.data.train_labels)


def adapt_benchmark(found: Any, name: str) -> Benchmark:
    """Return a benchmark of tasks, or of a function that returns them; else raise a TypeError. Nothing is read yet."""
    if isinstance(found, Benchmark):
        return found
    if isinstance(found, Mapping) or (isinstance(found, Sequence) and not isinstance(found, str)):
        return OwnBenchmark(name, make=lambda: found)
    if not callable(found):
        raise TypeError(f"{RULE}, got {type(found).__name__}")
    required = [one.name for one in read_parameters(found) if one.default is one.empty]
    if required:
        raise TypeError(f"{RULE}, got one that needs {', '.join(required)}")
    return OwnBenchmark(name, make=found)


def _find_labels(data: OwnData, task: int) -> list[int]:
    """Return the labels of a task, in order, of its training and test examples together."""
    classes = torch.cat([data.train_labels, data.test_labels]).unique()
    first = task * len(data.labels)
    ranks = classes[(classes >= first) & (classes < first + len(data.labels))] - first
    return [data.labels[rank] for rank in ranks.tolist()]


def _make_heads(scenario: str, labels: list[list[int]], names: Sequence[str]) -> list[slice]:
    """Return the outputs of the model that each task uses."""
    if scenario == "class":
        outputs = max(own[-1] for own in labels) + 1
        return [slice(0, outputs)] * len(labels)
    for own, name in zip(labels, names, strict=False):
        if len(own) < 2:  # a head of one output is always right
            raise ValueError(f"`stream`: {name} must have at least 2 labels in scenario {scenario!r}, got {own}")
    if scenario == "domain":
        _check_domain(labels, names)
        return [slice(0, max(map(len, labels)))] * len(labels)
    ends = [sum(map(len, labels[: number + 1])) for number in range(len(labels))]
    return [slice(end - len(own), end) for end, own in zip(ends, labels, strict=True)]


def _check_domain(labels: list[list[int]], names: Sequence[str]) -> None:
    """Refuse tasks that share some labels and not others: the same label would be different outputs."""
    for number, own in enumerate(labels):
        for before in range(number):
            shared = set(own) & set(labels[before])
            if shared and own != labels[before]:
                raise ValueError(
                    f"`scenario` domain needs tasks with the same labels, or with none in common, but {names[before]} "
                    f"and {names[number]} share {len(shared)} of {len(set(own) | set(labels[before]))}; "
                    "class keeps labels as they are"
                )
