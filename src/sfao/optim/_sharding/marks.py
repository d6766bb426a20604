"""A state in two parts: the tensors that ranks share, by name, and all the rest, with marks in the place of these."""

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import torch
from torch import Tensor

from sfao.optim._sharding.shards import is_sharded, localise

#: Marks, in the header, the place of a tensor: (mark, name, shape, dtype, dimension along which ranks cut it).
MARK = "sfao_tensor"


def mark_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return the value with every tensor that ranks share replaced by a mark; `tensors` takes these."""
    if isinstance(value, Tensor):
        dim = next((p.dim for p in value.placements if p.is_shard()), None) if is_sharded(value) else None  # type: ignore[attr-defined]
        if not value.numel() or (dim is None and not is_sharded(value)):
            return localise(value).detach().cpu() if value.numel() else torch.empty(value.shape, dtype=value.dtype)
        tensors[name] = value
        return (MARK, name, list(value.shape), str(value.dtype).removeprefix("torch."), dim)
    if isinstance(value, dict):
        return {key: mark_tensors(part, f"{name}/{key}", tensors) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mark_tensors(part, f"{name}/{number}", tensors) for number, part in enumerate(value))
    return value


def _is_mark(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 5 and value[0] == MARK


def find_marks(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield all marks inside a value."""
    if _is_mark(value):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from find_marks(part)


def replace_marks(value: Any, find: Callable[[tuple[Any, ...]], Any]) -> Any:
    """Return the value with what `find` returns in place of every mark."""
    if _is_mark(value):
        return find(value)
    if isinstance(value, dict):
        return {key: replace_marks(part, find) for key, part in value.items()}
    return type(value)(replace_marks(part, find) for part in value) if isinstance(value, (list, tuple)) else value


def pack(header: Any) -> bytes:
    """Return a value as bytes that torch.load reads, weights_only."""
    file = BytesIO()
    torch.save(header, file)
    return file.getvalue()
