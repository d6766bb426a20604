"""Directions as rows of a matrix, one matrix a parameter."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from sfao.gating.block import Block, Matrices

# Columns handled at a time where rows must be gathered or widened: the copy then stays in the cache.
CHUNK = 16384


class DenseBlock(Block):
    kind = "dense"

    def slot_shapes(self) -> list[tuple[int, ...]]:
        return [(self.layout.rows * columns,) for columns in self.layout.columns]

    def write(self, slot: int, gradients: Matrices, scale: float, generator: torch.Generator) -> None:
        for rows, gradient in zip(self.tensors, gradients, strict=True):
            if gradient is None:
                rows[slot] = 0
            else:
                rows[slot] = gradient.flatten() * scale

    def dots(self, gradients: Matrices, count: int, index: Tensor | None = None) -> Tensor:
        parts = [
            _times_vector(rows[:count], gradient.flatten(), index)
            for rows, gradient in zip(self.tensors, gradients, strict=True)
            if gradient is not None
        ]
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]

    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        for rows, gradient in zip(self.tensors, gradients, strict=True):
            if gradient is not None:
                _subtract_combination_(gradient.view(-1), rows[: len(weights)], weights.to(gradient.dtype))

    def squares(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        parts = [rows for rows, is_active in zip(self.tensors, active, strict=True) if is_active]
        norms = [[torch.linalg.vector_norm(rows[slot], dtype=torch.float32) for rows in parts] for slot in slots]
        return torch.tensor(norms, dtype=torch.float64, device=slots.device).square().sum(1)

    def gram(self, slots: Tensor, count: int, active: Sequence[bool]) -> Tensor:
        first = self.tensors[0]
        total = torch.zeros(len(slots), count, dtype=torch.float64, device=first.device)
        for rows, is_active in zip(self.tensors, active, strict=True):
            if is_active:
                for columns in _chunks(rows):
                    wide = rows[:count, columns].double()
                    total.addmm_(wide[slots], wide.T)
        return total


def _chunks(rows: Tensor) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, rows.shape[1], CHUNK))


def _times_vector(rows: Tensor, vector: Tensor, index: Tensor | None) -> Tensor:
    if index is None and rows.dtype == vector.dtype:
        return rows @ vector
    total = vector.new_zeros(len(rows) if index is None else len(index))
    for columns in _chunks(rows):
        picked = rows[:, columns] if index is None else rows[:, columns][index]
        total.addmv_(picked.to(vector.dtype), vector[columns])
    return total


def _subtract_combination_(vector: Tensor, rows: Tensor, weights: Tensor) -> None:
    if rows.dtype == vector.dtype:
        vector.addmv_(rows.T, weights, alpha=-1)
        return
    for columns in _chunks(rows):
        vector[columns].addmv_(rows[:, columns].to(vector.dtype).T, weights, alpha=-1)
