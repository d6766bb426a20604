"""Checks of saved states: every number, list and tensor is looked at before it is used, and an error names it."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

#: Whole numbers are held in 64 bits.
LARGEST = 2**63


def check_whole(name: str, value: Any, least: int = 0) -> int:
    """Return a whole number of at least so much; a ValueError names one that is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < LARGEST:
        raise ValueError(f"{name!r} must be a whole number of at least {least}, got {show(value)}")
    return value


def check_real(name: str, value: Any) -> float:
    """Return a finite number of at least 0; a ValueError names one that is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value < 0:
        raise ValueError(f"{name!r} must be a finite number of at least 0, got {show(value)}")
    return float(value)


def check_numbers(name: str, values: Any, count: int) -> list[float]:
    """Return so many finite numbers; a ValueError names them if they are others."""
    is_list = isinstance(values, (list, tuple)) and len(values) == count
    if not is_list or not all(isinstance(value, (int, float)) and isfinite(value) for value in values):
        raise ValueError(f"{name!r} must be {count} finite numbers, got {show(values)}")
    return [float(value) for value in values]


def check_tensor(name: str, value: Any, dtypes: Sequence[torch.dtype], shape: Sequence[int] | None = None) -> Tensor:
    """Return a finite tensor of one of these dtypes, and of this shape if one is given; a ValueError names others."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta:
        kind = type(value).__name__ if not isinstance(value, Tensor) else "one that holds no values"
        raise ValueError(f"{name!r} must be a dense tensor, got {kind}")
    if value.dtype not in dtypes:
        raise ValueError(f"{name!r} must be of dtype {' or '.join(map(str, dtypes))}, got {value.dtype}")
    if shape is not None and tuple(value.shape) != tuple(shape):
        raise ValueError(f"{name!r} must be of shape {tuple(shape)}, got {tuple(value.shape)}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name!r} must be finite, but has values that are not finite")
    return value


def check_slots(tasks: Any, arrivals: Any, offered: Any) -> None:
    """Raise a ValueError that names what does not agree in the origins of a memory's directions."""
    for name, values in (("memory/tasks", tasks), ("memory/arrivals", arrivals)):
        if not isinstance(values, (list, tuple)):
            raise ValueError(f"{name!r} must be a list, got {type(values).__name__}")
        for value in values:
            check_whole(name, value)
    if len(arrivals) != len(tasks) or len(set(arrivals)) != len(arrivals):
        raise ValueError(f"'memory/arrivals' must be {len(tasks)} different numbers, got {show(list(arrivals))}")
    if not isinstance(offered, Mapping):
        raise ValueError(f"'memory/offered' must be a dict, got {type(offered).__name__}")
    for task, count in offered.items():
        check_whole("memory/offered", task)
        check_whole("memory/offered", count)
    for task in set(tasks):
        if offered.get(task, 0) < tasks.count(task):
            raise ValueError(f"'memory/offered' must be at least what is held of task {task}, got {offered.get(task)}")
    if arrivals and max(arrivals) > sum(offered.values()):
        raise ValueError(f"'memory/arrivals' must be at most what was offered, got {max(arrivals)}")


def show(value: Any) -> str:
    """Return a value in one short line."""
    said = repr(value) if not isinstance(value, Tensor) else f"a tensor of shape {tuple(value.shape)}"
    said = " ".join(said.split())
    return said if len(said) <= 60 else f"{said[:57]}..."
