"""The tensors inside a batch of any kind: moved to the model, counted, cut into examples and joined again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

#: Values beside tensors that mean the same for every example of a batch.
CONSTANTS = (bool, int, float, str, type(None))


def map_tensors(change: Callable[..., Any], batch: Any, *others: Any) -> Any:
    """Return the batch with every tensor changed, together with the tensors in its place in others like it.

    They are found in tuples, lists, mappings and dataclasses; what else has a method `to` counts as one.
    """
    if isinstance(batch, Tensor):
        return change(batch, *others)
    if isinstance(batch, Mapping):
        changed = {key: map_tensors(change, batch[key], *(other[key] for other in others)) for key in batch}
        return _make_mapping(batch, changed)
    if isinstance(batch, (tuple, list)):
        parts = [map_tensors(change, *of_place) for of_place in zip(batch, *others, strict=True)]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if is_dataclass(batch) and not isinstance(batch, type):
        names = [field.name for field in fields(batch) if field.init]
        return replace(
            batch, **{name: map_tensors(change, *(getattr(b, name) for b in (batch, *others))) for name in names}
        )
    return change(batch, *others) if callable(getattr(batch, "to", None)) else batch


def find_leaves(batch: Any) -> Iterator[Any]:
    """Yield the tensors inside a batch, and whatever else is no container."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    elif is_dataclass(batch) and not isinstance(batch, type):
        batch = [getattr(batch, field.name) for field in fields(batch)]
    if isinstance(batch, (tuple, list)):
        for part in batch:
            yield from find_leaves(part)
    else:
        yield batch


def find_tensors(batch: Any) -> list[Tensor]:
    return [leaf for leaf in find_leaves(batch) if isinstance(leaf, Tensor)]


def move(batch: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    """Return the batch on a device, its floating tensors in this dtype."""

    def move_one(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.to(device, dtype)
        return value.to(device)

    return map_tensors(move_one, batch)


def count_examples(batch: Any) -> int | None:
    """Return how many examples the batch can be cut into: the length that all its tensors share; None if it cannot be.

    A sequence of anything but tensors, such as texts, cannot be cut.
    """
    lengths = set()
    for leaf in find_leaves(batch):
        if isinstance(leaf, Tensor):
            lengths.add(len(leaf) if leaf.ndim else None)
        elif not isinstance(leaf, CONSTANTS):
            return None
    return lengths.pop() if len(lengths) == 1 and not _holds_lists(batch) else None


def measure_size(batch: Any) -> int:
    """Return how many examples the batch is taken for: the length of its first tensor that has one."""
    return next((len(tensor) for tensor in find_tensors(batch) if tensor.ndim), 1)


def cut(batch: Any, number: int) -> Any:
    """Return a copy of one example as a batch of one."""
    return map_tensors(lambda tensor: tensor[number : number + 1].clone(), batch)


def copy(batch: Any) -> Any:
    """Return a copy: a batch may be a view that would keep a larger piece alive."""
    return map_tensors(lambda value: value.clone() if isinstance(value, Tensor) else value, batch)


def join(batches: Sequence[Any]) -> Any:
    """Return batches of one signature as one, their examples after each other."""
    return map_tensors(lambda *tensors: torch.cat(tensors), *batches) if len(batches) > 1 else batches[0]


def stack(batches: Sequence[Any]) -> Any:
    """Return batches of one signature, numbered in a new first dimension of every tensor."""
    return map_tensors(lambda *tensors: torch.stack(tensors), *batches)


def sign(batch: Any) -> list[object]:
    """Return the signature of a batch: shapes, dtypes and constants; those that share it can be stacked."""
    return [
        (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf if isinstance(leaf, CONSTANTS) else id(leaf)
        for leaf in find_leaves(batch)
    ]


def describe(batch: Any) -> str:
    """Return the kind of a batch in a few words."""
    kind = type(batch).__name__
    if isinstance(batch, Mapping):
        return f"{kind} of {', '.join(map(str, batch))}"
    if isinstance(batch, (tuple, list)):
        names = [type(part).__name__ for part in batch[:4]] + ["..."] * (len(batch) > 4)
        return f"{kind} of {', '.join(names)}"
    return kind


def _make_mapping(batch: Mapping[Any, Any], changed: dict[Any, Any]) -> Any:
    if type(batch) is dict:
        return changed
    try:
        return type(batch)(changed)  # type: ignore[call-arg]
    except TypeError:
        return changed


def _holds_lists(batch: Any) -> bool:
    """Tell whether a list or tuple inside the batch holds nothing but constants: perhaps one for each example."""
    if isinstance(batch, Mapping):
        return any(map(_holds_lists, batch.values()))
    if is_dataclass(batch) and not isinstance(batch, type):
        return any(_holds_lists(getattr(batch, field.name)) for field in fields(batch))
    if isinstance(batch, (tuple, list)):
        is_constant = [isinstance(part, CONSTANTS) for part in batch]
        return all(is_constant) if any(is_constant) and not find_tensors(batch) else any(map(_holds_lists, batch))
    return False
