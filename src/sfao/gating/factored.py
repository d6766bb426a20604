"""Directions as low-rank factors: a direction is the sum over r of left[r] x right[r]."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfao.gating.block import Block, Matrices
from sfao.gating.layout import Layout

OVERSAMPLING = 8
POWER_ITERATIONS = 2


class FactoredBlock(Block):
    """`tensors[0]` holds the left factors, then one tensor of right factors a parameter.

    The parameters of a layout share their rows, hence the left factors; [dW | db] is never put together.
    """

    kind = "factored"

    def __init__(self, layout: Layout, dtype: torch.dtype, rank: int) -> None:
        self.rank = rank
        super().__init__(layout, dtype)

    @staticmethod
    def saves_memory(layout: Layout, rank: int) -> bool:
        return rank * (layout.rows + layout.width) < layout.size

    def slot_shapes(self) -> list[tuple[int, ...]]:
        return [(self.rank, size) for size in (self.layout.rows, *self.layout.columns)]

    def write(self, slot: int, gradients: Matrices, scale: float, generator: torch.Generator) -> None:
        known = [gradient for gradient in gradients if gradient is not None]
        if not known:
            self.restore_slot(slot, [torch.zeros(shape) for shape in self.slot_shapes()])
            return
        filled = [
            known[0].new_zeros(self.layout.rows, columns) if gradient is None else gradient
            for gradient, columns in zip(gradients, self.layout.columns, strict=True)
        ]
        left, right = low_rank(torch.cat(filled, dim=1) * scale, self.rank, generator)
        factors = [left, *torch.split(right, list(self.layout.columns), dim=1)]
        for tensor, factor in zip(self.tensors, factors, strict=True):
            tensor[slot] = factor

    def dots(self, gradients: Matrices, count: int, index: Tensor | None = None) -> Tensor:
        pairs = self._right_factors(gradients, count, index)
        left = self._picked(self.tensors[0], count, index, pairs[0][1].dtype)
        images = pairs[0][0] @ pairs[0][1].T
        for right, gradient in pairs[1:]:
            images.addmm_(right, gradient.T)
        return images.mul_(left).view(-1, self.rank * self.layout.rows).sum(1)

    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        count = len(weights)
        pairs = self._right_factors(gradients, count, None)
        dtype = pairs[0][1].dtype
        left = self.tensors[0][:count].to(dtype) * weights.to(dtype).view(-1, 1, 1)
        left = left.view(-1, self.layout.rows).T
        for right, gradient in pairs:
            gradient.addmm_(left, right, alpha=-1)

    def squares(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        left, right = self._wide(slots, active)
        return ((left @ left.mT) * (right @ right.mT)).sum((1, 2))

    def gram(self, slots: Tensor, count: int, active: Sequence[bool]) -> Tensor:
        left, right = self._wide(slice(count), active)
        inner = _inner(left[slots], left) * _inner(right[slots], right)
        return inner.view(len(slots), self.rank, count, self.rank).sum((1, 3))

    def _wide(self, slots: Tensor | slice, active: Sequence[bool]) -> tuple[Tensor, Tensor]:
        """Left factors and right factors of the active parameters, in float64."""
        left = self.tensors[0][slots].double()
        rights = [right[slots].double() for right, is_active in zip(self.tensors[1:], active, strict=True) if is_active]
        return left, torch.cat(rights, dim=2) if rights else left.new_zeros(len(left), self.rank, 1)

    def _right_factors(self, gradients: Matrices, count: int, index: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        """The right factors of each parameter that has a gradient, beside that gradient."""
        return [
            (self._picked(right, count, index, gradient.dtype), gradient)
            for right, gradient in zip(self.tensors[1:], gradients, strict=True)
            if gradient is not None
        ]

    def _picked(self, factor: Tensor, count: int, index: Tensor | None, dtype: torch.dtype) -> Tensor:
        picked = factor[:count] if index is None else factor[index]
        return picked.to(dtype).flatten(0, 1)


def _inner(some: Tensor, all_: Tensor) -> Tensor:
    return some.flatten(0, 1) @ all_.flatten(0, 1).T


def low_rank(matrix: Tensor, rank: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The best factors of `rank`, left (rank x rows) and right (rank x columns), by a randomised SVD.

    Exact up to rounding when the matrix has no larger rank. torch.svd_lowrank would do, but it draws from
    torch's global generator, and storing a direction must not change the run it belongs to.
    """
    sketch_size = min(rank + OVERSAMPLING, *matrix.shape)
    sketch = torch.randn(matrix.shape[1], sketch_size, generator=generator).to(matrix)
    basis = torch.linalg.qr(matrix @ sketch).Q
    for _ in range(POWER_ITERATIONS):
        basis = torch.linalg.qr(matrix.T @ basis).Q
        basis = torch.linalg.qr(matrix @ basis).Q
    left, values, right = torch.linalg.svd(basis.T @ matrix, full_matrices=False)
    # The scale is shared between the two factors, so that neither leaves the range of a narrow dtype.
    root = values[:rank].sqrt()
    return (basis @ left[:, :rank] * root).T, root[:, None] * right[:rank]
