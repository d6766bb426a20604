"""One's own tasks, given as torch data sets, read into memory and checked: one class for each label of each task."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from sfao.lab.data.dataset import Dataset
from sfao.lab.data.errors import DataError
from sfao.lab.names import is_own

#: Labels from here on are probably no labels.
MOST_LABELS = 100_000
#: Data sets of one task, in the order they are given.
PARTS = ("training", "test")

Examples = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class OwnData(Dataset):
    """The examples of all tasks. Class t * n + k is the k-th of the n `labels` in task t.

    So whatever is drawn from every class, a slice or a validation part, is drawn from every class of every task.
    """

    task_names: tuple[str, ...] = ()
    #: All labels that there are, in order.
    labels: tuple[int, ...] = ()


def read_tasks(tasks: Any, name: str) -> OwnData:
    """Read [(train, test), ...] or {name: (train, test)}; raise a DataError that names what is wrong."""
    named = _name_tasks(tasks)
    read = {title: [_read(title, *part) for part in zip(PARTS, pair, strict=True)] for title, pair in named.items()}
    _check_alike(read)
    labels = sorted({label for parts in read.values() for _, found in parts for label in found.unique().tolist()})
    rank = torch.full((labels[-1] + 1,), -1)
    rank[labels] = torch.arange(len(labels))
    inputs, classes = [], []
    for part in range(len(PARTS)):
        inputs.append(torch.cat([parts[part][0] for parts in read.values()]))
        classes.append(torch.cat([n * len(labels) + rank[parts[part][1]] for n, parts in enumerate(read.values())]))
    return OwnData(
        name=name.partition(":")[2] if is_own(name) else name,
        train_images=inputs[0],
        train_labels=classes[0],
        test_images=inputs[1],
        test_labels=classes[1],
        classes=len(read) * len(labels),
        mean=(),
        std=(),
        complete=True,
        embedded=False,
        digest=_digest(*inputs, *classes),
        task_names=tuple(read),
        labels=tuple(labels),
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


def _read(task: str, part: str, dataset: Any) -> Examples:
    """Return all inputs and labels of a data set."""
    where = f"`stream`: the {part} set of {task}"
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DataError(f"{where} must be a torch data set with a length, got {_describe(dataset)}")
    if not len(dataset):
        raise DataError(f"{where} must have at least one example, got none")
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        inputs, labels = dataset.tensors
    else:
        inputs, labels = _read_items(where, dataset)
    return _check_inputs(where, inputs), _check_labels(where, labels)


def _read_items(where: str, dataset: Any) -> Examples:
    inputs: list[Tensor] = []
    labels: list[Tensor] = []
    for number in range(len(dataset)):
        item = dataset[number]
        if not (isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], Tensor)):
            raise DataError(f"{where} must yield (tensor, label), got {_describe(item)} as item {number}")
        if inputs and item[0].shape != inputs[0].shape:
            shapes = f"{tuple(item[0].shape)} as item {number} after {tuple(inputs[0].shape)}"
            raise DataError(f"{where} must have inputs of one shape, got {shapes}")
        try:
            labels.append(torch.as_tensor(item[1]))
        except (TypeError, ValueError, RuntimeError):
            raise DataError(f"{where} must have whole numbers as labels, got {item[1]!r} as item {number}") from None
        inputs.append(item[0])
    if any(label.dim() for label in labels):
        raise DataError(f"{where} must have one label for each input, got labels of shape {tuple(labels[0].shape)}")
    return torch.stack(inputs), torch.stack(labels)


def _check_inputs(where: str, inputs: Tensor) -> Tensor:
    """Return floats as float32; other numbers must be int64, as embeddings take them."""
    if not inputs.is_floating_point():
        if inputs.dtype != torch.int64:
            raise DataError(f"{where} must have inputs of floats, or of int64 for an embedding, got {inputs.dtype}")
        return inputs.detach().cpu()
    if not inputs.isfinite().all():
        raise DataError(f"{where} must have finite inputs, got NaN or infinity")
    return inputs.detach().float().cpu()


def _check_labels(where: str, labels: Tensor) -> Tensor:
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(f"{where} must have whole numbers as labels, got {labels.dtype}")
    if labels.dim() != 1:
        raise DataError(f"{where} must have one label for each input, got labels of shape {tuple(labels.shape[1:])}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= MOST_LABELS:
        raise DataError(f"{where} must have labels from 0 to {MOST_LABELS - 1}, got {low if low < 0 else high}")
    return labels.detach().long().cpu()


def _check_alike(read: Mapping[str, Sequence[Examples]]) -> None:
    """Refuse tasks whose inputs are not all of one shape and type: one model learns them all."""
    first: tuple[str, Tensor] | None = None
    for task, parts in read.items():
        for part, (inputs, _) in zip(PARTS, parts, strict=True):
            place = f"the {part} set of {task}"
            if first is None:
                first = place, inputs
            if _shape(inputs) != _shape(first[1]):
                raise DataError(
                    f"`stream` must have inputs of one shape and type, got {_shape(inputs)} in {place} "
                    f"and {_shape(first[1])} in {first[0]}"
                )


def _shape(inputs: Tensor) -> str:
    return f"{tuple(inputs.shape[1:])} of {str(inputs.dtype).removeprefix('torch.')}"


def _digest(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(str(tuple(tensor.shape)).encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _describe(value: object) -> str:
    """Return the type of a value, and of what it holds where it is a tuple or a list."""
    if isinstance(value, tuple | list):
        return f"({', '.join(type(one).__name__ for one in value[:4])}{', ...' if len(value) > 4 else ''})"
    return type(value).__name__
