"""The rows of parameters, or of tensors like them, that a rank works on: taken, and given back when changed.

What is cut along its rows is there already. What is cut along its columns, or whole on every rank, is exchanged: all of
it in one collective, whatever the number of parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from sfao.optim._sharding.shards import Shards, cut_shape, find_dim, is_sharded, localise


@dataclass(frozen=True)
class TakenRows:
    """Rows of some tensors, None where there is none, with where they came from."""

    parameters: Sequence[Tensor]
    #: What this rank holds of each tensor.
    local: list[Tensor | None]
    rows: list[Tensor | None]


def take_rows(parameters: Sequence[Tensor], tensors: Sequence[Tensor | None], shards: Shards) -> TakenRows:
    """Return this rank's rows of tensors, each cut as its parameter is."""
    local = [
        None if tensor is None else localise(_align(tensor, p)) for p, tensor in zip(parameters, tensors, strict=True)
    ]
    rows = [
        None if own is None else _cut_own(own, find_dim(parameter), shards)
        for parameter, own in zip(parameters, local, strict=True)
    ]
    by_columns = [n for n, own in enumerate(local) if own is not None and find_dim(parameters[n]) == 1]
    for dtype, numbers in _by_dtype(by_columns, local):
        pieces = [
            [_there(local[n])[shards.cut(parameters[n].shape[0], rank)] for n in numbers] for rank in range(shards.size)
        ]
        shapes = [
            [_piece_shape(parameters[n], shards, shards.rank, rank) for n in numbers] for rank in range(shards.size)
        ]
        found = shards.exchange(pieces, [sum(map(prod, of_rank)) for of_rank in shapes])
        split = [_split(flat, of_rank) for flat, of_rank in zip(found, shapes, strict=True)]
        for place, number in enumerate(numbers):
            rows[number] = torch.cat([of_rank[place] for of_rank in split], 1).to(dtype)
    return TakenRows(parameters, local, rows)


def give_back(taken: TakenRows, shards: Shards) -> None:
    """Write rows that were changed back to where they were taken from, on every rank that holds them."""
    moved: list[int] = []
    for number, (parameter, own, rows) in enumerate(zip(taken.parameters, taken.local, taken.rows, strict=True)):
        if own is None or rows is None:
            continue
        if find_dim(parameter) != 0:
            moved.append(number)
        elif rows.data_ptr() != own.data_ptr():
            own.copy_(rows.view(own.shape))
    for _, numbers in _by_dtype(moved, taken.rows):
        pieces = [[_send(taken, n, rank, shards) for n in numbers] for rank in range(shards.size)]
        shapes = [[_return_shape(taken.parameters[n], rank, shards) for n in numbers] for rank in range(shards.size)]
        found = shards.exchange(pieces, [sum(map(prod, of_rank)) for of_rank in shapes])
        for rank, (flat, of_rank) in enumerate(zip(found, shapes, strict=True)):
            for number, piece in zip(numbers, _split(flat, of_rank), strict=True):
                place = _there(taken.local[number])
                place = place if place.ndim else place.view(1)
                place[shards.cut(len(place), rank)] = piece


def _align(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Return the tensor cut as its parameter is; gradients of whole parameters come as sums to be taken."""
    if is_sharded(tensor) and tensor.placements != parameter.placements:  # type: ignore[attr-defined]
        raise ValueError(
            f"gradients must be cut as their parameters are, got {tensor.placements} "  # type: ignore[attr-defined]
            f"for {parameter.placements}"  # type: ignore[attr-defined]
        )
    return tensor


def _cut_own(own: Tensor, dim: int | None, shards: Shards) -> Tensor | None:
    if dim == 1:
        return None
    rows = own if own.ndim else own.view(1)
    return rows.contiguous() if dim == 0 else rows[shards.cut(len(rows))].contiguous()


def _piece_shape(parameter: Tensor, shards: Shards, rank: int, sender: int) -> tuple[int, ...]:
    """Return the shape of a rank's rows of what another holds of a parameter that is cut along its columns."""
    rows, columns, *others = parameter.shape
    return (shards.own(rows, rank), shards.own(columns, sender), *others)


def _return_shape(parameter: Tensor, sender: int, shards: Shards) -> tuple[int, ...]:
    if find_dim(parameter) == 1:
        return _piece_shape(parameter, shards, sender, shards.rank)
    return cut_shape(parameter.shape, shards, sender)


def _send(taken: TakenRows, number: int, rank: int, shards: Shards) -> Tensor:
    rows, parameter = _there(taken.rows[number]), taken.parameters[number]
    return rows[:, shards.cut(parameter.shape[1], rank)] if find_dim(parameter) == 1 else rows


def _by_dtype(numbers: Sequence[int], tensors: Sequence[Tensor | None]) -> list[tuple[torch.dtype, list[int]]]:
    found: dict[torch.dtype, list[int]] = {}
    for number in numbers:
        found.setdefault(_there(tensors[number]).dtype, []).append(number)
    return list(found.items())


def _split(flat: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    parts = flat.split([prod(shape) for shape in shapes])
    return [part.view(*shape) for part, shape in zip(parts, shapes, strict=True)]


def _there(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor
