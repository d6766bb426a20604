"""Directions as rows of a matrix, one matrix per parameter."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from sfao.gating._block import ALL, Block, Matrices, Stack
from sfao.gating._layout import Layout, reorder_columns

# Columns handled at a time where rows must be widened: the copy then stays in the cache.
CHUNK = 16384


class DenseBlock(Block):
    kind = "dense"
    has_rank = False
    work_unit = "B"

    @classmethod
    def make(cls, layout: Layout, dtype: torch.dtype, rank: int) -> Block:
        return cls(layout, dtype)

    @classmethod
    def make_like(cls, layout: Layout, tensors: Sequence[Tensor]) -> "DenseBlock":
        return cls(layout, tensors[0].dtype)

    @property
    def work_per_entry(self) -> int:
        return self.dtype.itemsize

    @property
    def kernel_tensors(self) -> tuple[None, list[Tensor]]:
        return None, self.used

    def slot_shapes(self) -> list[tuple[int, ...]]:
        return [(self.layout.rows * columns,) for columns in self.layout.columns]

    def encode(self, gradients: Stack, scales: Tensor) -> list[Tensor]:
        return [
            rows.new_zeros(len(scales), rows.shape[1]) if gradient is None else gradient.flatten(1)
            for rows, gradient in zip(self.tensors, gradients.matrices(scales), strict=True)
        ]

    def dots(self, gradients: Matrices, index: Tensor | slice = ALL) -> Tensor:
        parts = [
            _multiply(rows, gradient.view(-1), index)
            for rows, gradient in zip(self.used, gradients, strict=True)
            if gradient is not None
        ]
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]

    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        for rows, gradient in zip(self.used, gradients, strict=True):
            if gradient is not None:
                _subtract_combination_(gradient.view(-1), rows, weights.to(gradient.dtype))

    def scale_(self, factors: Tensor) -> None:
        for rows in self.used:
            rows.mul_(factors[:, None])

    def reorder(self, before: Sequence[int], after: Sequence[int]) -> list[Tensor]:
        moves = zip(self.used, before, after, strict=True)
        return [reorder_columns(rows, self.layout.rows, old, new) for rows, old, new in moves]

    def squares(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        total = torch.zeros(len(slots), dtype=torch.float64, device=slots.device)
        for rows, is_active in zip(self.used, active, strict=True):
            if is_active:
                # Row by row: gathering them first would write and read them once more.
                norms = [torch.linalg.vector_norm(rows[slot], dtype=torch.float32) for slot in slots.tolist()]
                total += torch.stack(norms).double().square()
        return total

    def gram(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        total = torch.zeros(len(slots), self.count, dtype=torch.float64, device=slots.device)
        for rows, is_active in zip(self.used, active, strict=True):
            if is_active:
                for columns in _split_columns(rows):
                    wide = rows[:, columns].double()
                    total.addmm_(wide[slots], wide.T)
        return total


def _split_columns(rows: Tensor) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, rows.shape[1], CHUNK))


def _multiply(rows: Tensor, vector: Tensor, index: Tensor | slice) -> Tensor:
    if isinstance(index, Tensor):
        # Row by row: gathering the rows first would write and read them once more.
        return torch.stack([rows[slot].to(vector.dtype) @ vector for slot in index.tolist()])
    if rows.dtype != vector.dtype and len(vector):
        parts = [_multiply(rows[:, part].to(vector.dtype), vector[part], index) for part in _split_columns(rows)]
        return torch.stack(parts).sum(0)
    # A product with a vector runs on one core, a batch of them on all: deal the rows out to the cores.
    rows = rows.to(vector.dtype)
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
