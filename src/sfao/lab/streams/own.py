"""Benchmarks of your own tasks: torch data sets, read into memory, checked, and split as they are given."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from sfao.checks import check_choice
from sfao.lab.data.dataset import Dataset
from sfao.lab.data.errors import DataError
from sfao.lab.names import is_own, read_parameters
from sfao.lab.streams.seeding import draw_validation
from sfao.lab.streams.stream import SCENARIOS, Benchmark, Stream, TaskSplit, make_task, order_tasks

RULE = "must be a list or dict of (train, test) pairs of data sets, or a function of no arguments that returns one"
#: Labels from here on are probably no labels.
MAX_LABELS = 100_000
#: Data sets of one task, in the order they are given.
PARTS = ("training", "test")

Examples = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class OwnData(Dataset):
    """The examples of all tasks. Class t * n + k is the k-th of the n `labels` in task t.

    So whatever is drawn from every class, a slice or a validation part, is drawn from every class of every task.
    """

    task_names: tuple[str, ...] = ()
    #: All labels, in order.
    labels: tuple[int, ...] = ()

    def list_labels(self, task: int) -> list[int]:
        """Return the labels of a task, in order, of its training and test examples together."""
        first = task * len(self.labels)
        ranks = torch.cat([self.train_labels, self.test_labels]).unique() - first
        return [self.labels[rank] for rank in ranks.tolist() if 0 <= rank < len(self.labels)]


def read_tasks(tasks: Any, name: str) -> OwnData:
    """Read [(train, test), ...] or {name: (train, test)}; a DataError names what is wrong."""
    named = _name_tasks(tasks)
    places = [(title, part) for title in named for part in PARTS]
    read = [
        _read(f"`stream`: the {part} set of {title}", dataset)
        for (title, part), dataset in zip(places, (each for pair in named.values() for each in pair), strict=True)
    ]
    for (title, part), (inputs, _) in zip(places, read, strict=True):
        if _shape(inputs) != _shape(read[0][0]):
            raise DataError(
                f"`stream` must have inputs of one shape and type, got {_shape(inputs)} in the {part} set of {title} "
                f"and {_shape(read[0][0])} in the {places[0][1]} set of {places[0][0]}"
            )
    labels = torch.cat([found for _, found in read]).unique()
    classes = [number // 2 * len(labels) + torch.searchsorted(labels, found) for number, (_, found) in enumerate(read)]
    examples = [each for each, _ in read]
    arrays = torch.cat(examples[::2]), torch.cat(examples[1::2]), torch.cat(classes[::2]), torch.cat(classes[1::2])
    return OwnData(
        name=name.partition(":")[2] if is_own(name) else name,
        train_images=arrays[0],
        train_labels=arrays[2],
        test_images=arrays[1],
        test_labels=arrays[3],
        classes=len(named) * len(labels),
        mean=(),
        std=(),
        complete=True,
        embedded=False,
        digest=_digest(*arrays),
        task_names=tuple(named),
        labels=tuple(labels.tolist()),
    )


def _name_tasks(tasks: Any) -> dict[str, Sequence[Any]]:
    """Return {name: (train, test)}; tasks without names are task 1, task 2, ..."""
    if isinstance(tasks, Mapping):
        named = {str(name): pair for name, pair in tasks.items()}
    elif isinstance(tasks, Sequence) and not isinstance(tasks, str):
        named = {f"task {number}": pair for number, pair in enumerate(tasks, start=1)}
    else:
        raise DataError(f"`stream` must be a list or a dict of tasks, got {type(tasks).__name__}")
    if not named:
        raise DataError("`stream` must have at least one task, got none")
    for name, pair in named.items():
        if not isinstance(pair, Sequence) or len(pair) != len(PARTS):
            raise DataError(f"`stream`: {name} must be (train, test), two torch data sets, got {_describe(pair)}")
    return named


def _read(where: str, dataset: Any) -> Examples:
    """Return all inputs, floats as float32, and all labels of a data set."""
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DataError(f"{where} must be a torch data set with a length, got {_describe(dataset)}")
    if not len(dataset):
        raise DataError(f"{where} must have at least one example, got none")
    is_tensors = isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2
    inputs, labels = dataset.tensors if is_tensors else _read_items(where, dataset)
    if inputs.is_floating_point():
        inputs = inputs.float()
    elif inputs.dtype != torch.int64:
        raise DataError(f"{where} must have inputs of floats, or of int64 for an embedding, got {inputs.dtype}")
    if not inputs.isfinite().all():
        raise DataError(f"{where} must have finite inputs, got NaN or infinity")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool or labels.dim() != 1:
        found = f"{labels.dtype} of shape {tuple(labels.shape[1:])}"
        raise DataError(f"{where} must have one integer as the label of each input, got {found}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= MAX_LABELS:
        raise DataError(f"{where} must have labels from 0 to {MAX_LABELS - 1}, got {low if low < 0 else high}")
    return inputs.detach().cpu(), labels.detach().long().cpu()


def _read_items(where: str, dataset: Any) -> Examples:
    items = [dataset[number] for number in range(len(dataset))]
    for number, item in enumerate(items):
        if not (isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], Tensor)):
            raise DataError(f"{where} must yield (tensor, label), got {_describe(item)} as item {number}")
    try:
        return torch.stack([inputs for inputs, _ in items]), torch.stack([torch.as_tensor(label) for _, label in items])
    except (TypeError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:100]
        raise DataError(f"{where} must have inputs of one shape, and integers as labels: {said}") from None


def _shape(inputs: Tensor) -> str:
    return f"{tuple(inputs.shape[1:])} of {str(inputs.dtype).removeprefix('torch.')}"


def _digest(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(str(tuple(tensor.shape)).encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _describe(value: object) -> str:
    """Return the type of a value, and of what it holds if it is a tuple or a list."""
    if isinstance(value, tuple | list):
        return f"({', '.join(type(one).__name__ for one in value[:4])}{', ...' if len(value) > 4 else ''})"
    return type(value).__name__


def split_own(
    dataset: Dataset,
    *,
    tasks: int | None = None,
    scenario: str = "domain",
    seed: int = 0,
    order: str | Sequence[int] | None = None,
    validation: float = 0.0,
) -> Stream:
    """Return the stream of your own tasks, or of the first `tasks` of them.

    `class`: labels are as they are, and all tasks share all outputs. `task`: every task has outputs of its own, one for
    each of its labels in their order. `domain`: the same labels, but all tasks share the outputs.
    """
    if not isinstance(dataset, OwnData):
        raise TypeError(f"a stream of your own tasks needs their data, got {type(dataset).__name__}")
    check_choice("scenario", scenario, SCENARIOS)
    count = len(dataset.task_names) if tasks is None else tasks
    if not 1 <= count <= len(dataset.task_names):
        raise ValueError(f"`tasks` must be from 1 to the {len(dataset.task_names)} that there are, got {count}")
    labels = [dataset.list_labels(number) for number in range(count)]
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
        order=places,
    )


def _make_heads(scenario: str, labels: list[list[int]], names: Sequence[str]) -> list[slice]:
    """Return the outputs of the model that each task uses."""
    if scenario == "class":
        return [slice(0, max(own[-1] for own in labels) + 1)] * len(labels)
    for number, own in enumerate(labels):
        if len(own) < 2:  # a head of one output is always right
            raise ValueError(
                f"`stream`: {names[number]} must have at least 2 labels in scenario {scenario!r}, got {own}"
            )
        for before in range(number) if scenario == "domain" else ():
            shared = set(own) & set(labels[before])
            if shared and own != labels[before]:  # the same label would be different outputs
                raise ValueError(
                    f"`scenario` domain needs tasks with the same labels, or with none in common, but {names[before]} "
                    f"and {names[number]} share {len(shared)} of {len(set(own) | set(labels[before]))}; "
                    "class keeps labels as they are"
                )
    if scenario == "domain":
        return [slice(0, max(map(len, labels)))] * len(labels)
    ends = [sum(map(len, labels[: number + 1])) for number in range(len(labels))]
    return [slice(end - len(own), end) for end, own in zip(ends, labels, strict=True)]


OWN = TaskSplit("own", split_own)


@dataclass(frozen=True)
class OwnBenchmark(Benchmark):
    """Your own tasks, read when they are first needed; records call the data `dataset`."""

    split: TaskSplit = OWN
    tasks: int | None = None
    #: The model that takes inputs of any shape.
    settings: dict[str, Any] = field(default_factory=lambda: {"model": {"name": "mlp"}})
    make: Callable[[], Any] = list

    @cached_property
    def data(self) -> OwnData:
        try:
            return read_tasks(self.make(), self.dataset)
        except DataError:
            raise
        except Exception as error:  # your code may fail in any way
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise DataError(f"`stream` {self.dataset!r} cannot be read: {said}") from error

    def load(self, data_root: Path | None = None) -> Dataset:
        return self.data

    def count_training_examples(self) -> int:
        return len(self.data.train_labels)


def adapt_benchmark(found: Any, name: str) -> Benchmark:
    """Return a benchmark of tasks, or of a function that returns them, unread; else raise a TypeError."""
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
