"""Directions as low-rank factors: a direction is the sum over r of left[r] x right[r]."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from sfao.memory.directions import Directions, Matrices

OVERSAMPLING = 8
POWER_ITERATIONS = 2
#: Sides up to which the eigenvectors of the small Gram matrix, in float64, cost less than a randomized SVD.
SMALL_SIDE = 64


class FactoredDirections(Directions):
    """The left factors in the first tensor, then one tensor of right factors per parameter.

    The parameters of a layout share their rows, hence the left factors; [dW | db] is never concatenated.
    """

    kind: ClassVar[str] = "factored"

    def slot_shapes(self) -> list[tuple[int, ...]]:
        return [(self.rank, size) for size in (self.layout.rows, *self.layout.columns)]

    def dots(self, gradients: Matrices, index: Tensor | None = None) -> Tensor:
        factors = self.held if index is None else [t.index_select(0, index.to(t.device)) for t in self.held]
        left, *rights = (tensor.flatten(0, 1) for tensor in factors)
        present = [(right, own) for right, own in zip(rights, gradients, strict=True) if own is not None]
        images = present[0][0].to(present[0][1].dtype) @ present[0][1].T
        for right, gradient in present[1:]:
            images.addmm_(right.to(gradient.dtype), gradient.T)
        return images.mul_(left).view(len(factors[0]), -1).sum(1)

    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        present = [(right, own) for right, own in zip(self.held[1:], gradients, strict=True) if own is not None]
        left = (self.held[0] * weights.to(present[0][1].dtype).view(-1, 1, 1)).flatten(0, 1).T
        for right, gradient in present:
            gradient.addmm_(left, right.flatten(0, 1).to(gradient.dtype), alpha=-1)

    def gram(self, active: Sequence[bool]) -> Tensor:
        count = len(self.held[0])
        left, *rights = (tensor.flatten(0, 1).double() for tensor in self.held)
        right = torch.cat([right for right, is_active in zip(rights, active, strict=True) if is_active], 1)
        return ((left @ left.T) * (right @ right.T)).view(count, self.rank, count, self.rank).sum((1, 3))

    def encode(self, gradients: Matrices, scale: float) -> list[Tensor]:
        known = next(gradient for gradient in gradients if gradient is not None)
        filled = [
            known.new_zeros(shape) if gradient is None else gradient
            for gradient, shape in zip(gradients, self.layout.shapes, strict=True)
        ]
        left, right = find_factors(torch.cat(filled, 1), self.rank)
        # Equal norms on both sides, factor by factor: neither then leaves the range of a narrow dtype.
        lengths = [torch.linalg.vector_norm(side, dim=-1, keepdim=True, dtype=torch.float64) for side in (left, right)]
        root = (lengths[0] * lengths[1] * scale).sqrt()
        left, right = (
            (side * torch.where(length > 0, root / length, 0.0).to(side.dtype)).to(self.dtype)
            for side, length in zip((left, right), lengths, strict=True)
        )
        return [left, *right.split(list(self.layout.columns), dim=1)]


def find_factors(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the best low-rank factors of a matrix: left (rank x rows) and right (rank x columns).

    Their product left^T right is exact up to rounding if the matrix has no larger rank.
    """
    rows, columns = matrix.shape
    if min(rows, columns) > SMALL_SIDE:
        basis = _find_range(matrix, min(rank + OVERSAMPLING, rows, columns))
        left, right = find_factors(basis.T @ matrix, rank)
        return left @ basis.T, right
    if rows > columns:
        right, left = find_factors(matrix.T, rank)
        return left, right
    wide = matrix.double()
    left = torch.linalg.eigh(wide @ wide.T).eigenvectors[:, -rank:].T
    return left.to(matrix), (left @ wide).to(matrix)


def _find_range(matrix: Tensor, size: int) -> Tensor:
    """Return an orthonormal basis of nearly what the largest singular vectors on the left span (Halko et al. 2011).

    torch.svd_lowrank would do, but it draws from torch's global generator, and storing a direction must not change
    the run it belongs to.
    """
    seeded = torch.Generator().manual_seed(0)
    sketch = torch.randn(matrix.shape[1], size, generator=seeded, dtype=torch.float32, device="cpu").to(matrix)
    basis: Tensor = torch.linalg.qr(matrix @ sketch).Q
    for _ in range(POWER_ITERATIONS):
        basis = torch.linalg.qr(matrix.T @ basis).Q
        basis = torch.linalg.qr(matrix @ basis).Q
    return basis
