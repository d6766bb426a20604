"""Directions as rows of a matrix, one matrix per parameter."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from sfao.memory.directions import Directions, Matrices

# Columns handled at a time where rows must be widened: the copy then stays in the cache.
CHUNK = 16384


class DenseDirections(Directions):
    """One row per direction and parameter."""

    kind: ClassVar[str] = "dense"

    def slot_shapes(self) -> list[tuple[int, ...]]:
        return [(rows * columns,) for rows, columns in self.layout.shapes]

    def dots(self, gradients: Matrices, index: Tensor | None = None) -> Tensor:
        parts = [
            _multiply(rows, gradient.view(-1), index)
            for rows, gradient in zip(self.held, gradients, strict=True)
            if gradient is not None
        ]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)

    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        for rows, gradient in zip(self.held, gradients, strict=True):
            if gradient is not None:
                _subtract_combination_(gradient.view(-1), rows, weights.to(gradient.dtype))

    def gram(self, active: Sequence[bool]) -> Tensor:
        count = len(self.held[0])
        total = torch.zeros(count, count, dtype=torch.float64, device=self.held[0].device)
        for rows, is_active in zip(self.held, active, strict=True):
            for columns in _split_columns(rows) if is_active else ():
                wide = rows[:, columns].double()
                total.addmm_(wide, wide.T)
        return total

    def encode(self, gradients: Matrices, scale: float) -> list[Tensor]:
        pairs = zip(gradients, self.tensors, strict=True)
        return [
            rows.new_zeros(rows.shape[1:]) if gradient is None else (gradient * scale).view(-1).to(self.dtype)
            for gradient, rows in pairs
        ]


def _split_columns(rows: Tensor) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, rows.shape[1], CHUNK))


def _multiply(rows: Tensor, vector: Tensor, index: Tensor | None) -> Tensor:
    if index is not None:
        if rows.device.type != "cpu":
            return rows[index.to(rows.device)].to(vector.dtype) @ vector
        # Row by row: gathering the rows first would write and read them once more.
        return torch.stack([rows[slot].to(vector.dtype) @ vector for slot in index.tolist()])
    if rows.dtype != vector.dtype:
        parts = [_multiply(rows[:, part].to(vector.dtype), vector[part], None) for part in _split_columns(rows)]
        return torch.stack(parts).sum(0)
    # A product with a vector runs on one core, a batch of them on all: deal the rows out to the cores.
    cores = _count_cores(rows)
    share = len(rows) // cores
    dealt = rows[: cores * share].view(cores, share, len(vector))
    products = torch.bmm(vector.expand(cores, 1, -1), dealt.mT).view(-1)
    return torch.cat([products, rows[cores * share :] @ vector])


def _subtract_combination_(vector: Tensor, rows: Tensor, weights: Tensor) -> None:
    if rows.dtype != vector.dtype:
        for part in _split_columns(rows):
            _subtract_combination_(vector[part], rows[:, part].to(vector.dtype), weights)
        return
    cores = _count_cores(rows)
    share = len(vector) // cores
    dealt = rows[:, : cores * share].view(len(rows), cores, share).transpose(0, 1)
    vector[: cores * share].view(cores, 1, share).baddbmm_(weights.expand(cores, 1, -1), dealt, alpha=-1)
    vector[cores * share :].addmv_(rows[:, cores * share :].T, weights, alpha=-1)


def _count_cores(tensor: Tensor) -> int:
    return torch.get_num_threads() if tensor.device.type == "cpu" else 1
