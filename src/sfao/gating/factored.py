"""Directions as low-rank factors: a direction is the sum over r of left[r] x right[r]."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfao.gating._block import ALL, Block, Matrices, Stack
from sfao.gating._layout import Layout, reorder_columns
from sfao.gating.dense import DenseBlock


class FactoredBlock(Block):
    """`tensors[0]` holds the left factors, then one tensor of right factors per parameter.

    The parameters of a layout share their rows, hence the left factors; [dW | db] is never put together.
    """

    kind = "factored"
    has_rank = True
    work_unit = "FLOP"

    def __init__(self, layout: Layout, dtype: torch.dtype, rank: int) -> None:
        self.rank = rank
        super().__init__(layout, dtype)

    @classmethod
    def make(cls, layout: Layout, dtype: torch.dtype, rank: int) -> Block:
        saves_memory = rank * (layout.rows + layout.width) < layout.size
        return cls(layout, dtype, rank) if saves_memory else DenseBlock(layout, dtype)

    @classmethod
    def make_like(cls, layout: Layout, tensors: Sequence[Tensor]) -> "FactoredBlock":
        return cls(layout, tensors[0].dtype, tensors[0].shape[1])

    @property
    def work_per_entry(self) -> int:
        return 2 * self.rank

    @property
    def kernel_tensors(self) -> tuple[Tensor, list[Tensor]]:
        return self.used[0], self.used[1:]

    def slot_shapes(self) -> list[tuple[int, ...]]:
        return [(self.rank, size) for size in (self.layout.rows, *self.layout.columns)]

    def resize(self, count: int) -> None:
        super().resize(count)
        # One row per factor: what the matrix products of every step take.
        self._flat = [tensor.flatten(0, 1) for tensor in self.used]

    def encode(self, gradients: Stack, scales: Tensor) -> list[Tensor]:
        left, right = gradients.factors(self.layout, self.rank)
        left, right = _balance(left, right, scales)
        return [left, *torch.split(right, list(self.layout.columns), dim=2)]

    def dots(self, gradients: Matrices, index: Tensor | slice = ALL) -> Tensor:
        factors = (
            self._flat
            if isinstance(index, slice)
            else [tensor.index_select(0, index.to(tensor.device)).flatten(0, 1) for tensor in self.used]
        )
        (first, gradient), *others = _pair(factors[1:], gradients)
        images = first @ gradient.T
        for right, other in others:
            images.addmm_(right, other.T)
        count = len(factors[0]) // self.rank
        return images.mul_(factors[0]).view(count, self.rank * self.layout.rows).sum(1)

    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        pairs = _pair(self._flat[1:], gradients)
        left = self.used[0] * weights.to(pairs[0][1].dtype).view(-1, 1, 1)
        left = left.view(self.count * self.rank, self.layout.rows).T
        for right, gradient in pairs:
            gradient.addmm_(left, right, alpha=-1)

    def scale_(self, factors: Tensor) -> None:
        self.used[0].mul_(factors[:, None, None])

    def reorder(self, before: Sequence[int], after: Sequence[int]) -> list[Tensor]:
        moves = zip(self.used[1:], before, after, strict=True)
        return [self.used[0], *(reorder_columns(right, 1, old, new) for right, old, new in moves)]

    def squares(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        left, right = self._wide(slots, active)
        return ((left @ left.mT) * (right @ right.mT)).sum((1, 2))

    def gram(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        left, right = self._wide(slice(None), active)
        inner = _multiply(left[slots], left) * _multiply(right[slots], right)
        return inner.view(len(slots), self.rank, self.count, self.rank).sum((1, 3))

    def _wide(self, slots: Tensor | slice, active: Sequence[bool]) -> tuple[Tensor, Tensor]:
        """Left factors and right factors of the active parameters, in float64."""
        left = self.used[0][slots].double()
        rights = [right[slots].double() for right, is_active in zip(self.used[1:], active, strict=True) if is_active]
        return left, torch.cat(rights, dim=2) if rights else left.new_zeros(len(left), self.rank, 1)


class FactoredShard(FactoredBlock):
    """The factors that one of several holders has: left factors of its rows, right factors of some columns.

    Products need all columns of the right factors: whoever takes them brings these together first.
    """

    def __init__(self, layout: Layout, dtype: torch.dtype, rank: int, columns: Sequence[int]) -> None:
        self._held = list(columns)
        super().__init__(layout, dtype, rank)

    def slot_shapes(self) -> list[tuple[int, ...]]:
        return [(self.rank, size) for size in (self.layout.rows, *self._held)]

    def hold_tensors(self, tensors: list[Tensor]) -> None:
        self._held = [right.shape[-1] for right in tensors[1:]]
        super().hold_tensors(tensors)


def _pair(rights: Sequence[Tensor], gradients: Matrices) -> list[tuple[Tensor, Tensor]]:
    """The right factors of each parameter that has a gradient, in its dtype, beside that gradient."""
    return [
        (right if right.dtype == gradient.dtype else right.to(gradient.dtype), gradient)
        for right, gradient in zip(rights, gradients, strict=True)
        if gradient is not None
    ]


def _multiply(some: Tensor, all_: Tensor) -> Tensor:
    return some.flatten(0, 1) @ all_.flatten(0, 1).T


def _balance(left: Tensor, right: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors of left^T right times a scale each, as long on one side as on the other, factor by factor.

    Neither then leaves the range of a narrow dtype.
    """
    lengths = [torch.linalg.vector_norm(side, dim=-1, keepdim=True, dtype=torch.float64) for side in (left, right)]
    roots = (lengths[0] * lengths[1] * scales.view(-1, 1, 1)).sqrt()
    return tuple(
        side * torch.where(length > 0, roots / length, 0.0).to(side.dtype)
        for side, length in zip((left, right), lengths, strict=True)
    )  # type: ignore[return-value]
