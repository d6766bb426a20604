"""Projections off the remembered directions, in terms of their small Gram matrix.

A projection is u = g - sum_i w_i b_i. Each class here turns the inner products c_i = <g, b_i> into the
weights w; it sees the Gram matrix K of the directions (float64) and never the directions themselves, so
the same arithmetic serves every storage.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from sfao.gating._nonnegative import minimise_nonnegative

# Directions of the span shorter than this (a singular value of the unit directions) are rounding of the
# float32 they are stored in: leaving one out leaves at most 3e-6 of the gradient along a stored direction.
SMALLEST_SINGULAR_VALUE = 3e-6


class Projection(ABC):
    #: True if the weights are linear in the inner products, so that `factors` has them as matrices.
    is_linear: ClassVar[bool] = True
    #: True if what is removed is orthogonal to what is left, so that |u|^2 = |g|^2 - <c, w>.
    is_orthogonal: ClassVar[bool]
    #: The dimension of what is projected away; 0 where that is no subspace.
    rank: int = 0
    #: The smallest singular value of the unit directions that counts.
    smallest: float = 1.0

    @abstractmethod
    def __init__(self, gram: Tensor, arrivals: Sequence[int]) -> None:
        """From the Gram matrix of the directions and the order in which they arrived."""

    @abstractmethod
    def weights(self, dots: Tensor) -> Tensor:
        """Return the weights w of the directions, given the inner products c."""

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """Return matrices (inner, outer) with w = outer (inner c); None where the weights are not linear in c."""
        return None

    @property
    def bytes(self) -> int:
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, Tensor))


class Span(Projection):
    """Onto the orthogonal complement of the span: w = K^+ c (equation 6 and the appendix of the paper)."""

    is_orthogonal = True

    def __init__(self, gram: Tensor, arrivals: Sequence[int] = ()) -> None:
        unit, norms = _normalise(gram)
        values, vectors = torch.linalg.eigh(unit)
        kept = values > SMALLEST_SINGULAR_VALUE**2
        self.rank = int(kept.sum())
        # Two products with the scaled eigenvectors, not one with K^+: its entries would be rounded at the
        # size of the largest, 1 / SMALLEST_SINGULAR_VALUE squared.
        self._scaled: Tensor = vectors[:, kept] / values[kept].sqrt() / norms[:, None]
        self.smallest = float(values[kept].min().sqrt()) if self.rank else 1.0

    def weights(self, dots: Tensor) -> Tensor:
        return self._scaled @ (self._scaled.T @ dots)

    def factors(self) -> tuple[Tensor, Tensor]:
        return self._scaled.T, self._scaled


class Sequential(Projection):
    """One direction after the other, as the released code does: not a projection unless they are orthogonal.

    Subtracting b_i (b_i . u_i) / |b_i|^2 in turn means K_ii w_i = c_i - sum over j < i of K_ij w_j: a
    triangular solve.
    """

    is_orthogonal = False

    def __init__(self, gram: Tensor, arrivals: Sequence[int]) -> None:
        self._order = torch.tensor(sorted(range(len(arrivals)), key=arrivals.__getitem__), device=gram.device)
        self._triangle = gram[self._order][:, self._order].tril()
        squares = self._triangle.diagonal()
        squares[squares == 0] = 1.0  # a direction may be zero in the active parameters

    def weights(self, dots: Tensor) -> Tensor:
        ordered = torch.linalg.solve_triangular(self._triangle, dots[self._order, None], upper=False)
        return torch.empty_like(dots).index_copy_(0, self._order, ordered[:, 0])

    def factors(self) -> tuple[Tensor, Tensor]:
        identity = torch.eye(len(self._order), dtype=self._triangle.dtype, device=self._triangle.device)
        back = self._order.argsort()
        return identity, torch.linalg.solve_triangular(self._triangle, identity, upper=False)[back][:, back]


class Cone(Projection):
    """Onto the cone of steps that increase no represented loss, <u, b_i> >= 0 (equation 5 of the paper).

    With forces f = -w, the dual is the minimum of f K f / 2 + c f over f >= 0.
    """

    is_orthogonal = True
    is_linear = False

    def __init__(self, gram: Tensor, arrivals: Sequence[int] = ()) -> None:
        unit, self._norms = _normalise(gram)
        # A slight ridge makes K positive definite, which is what guarantees that pivoting ends.
        ridge = SMALLEST_SINGULAR_VALUE**2 * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        self._gram = unit + ridge

    def weights(self, dots: Tensor) -> Tensor:
        return -minimise_nonnegative(self._gram, dots / self._norms) / self._norms


def _normalise(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Gram matrix of the unit directions, and the norms; a direction may be zero where it is active."""
    norms = gram.diagonal().sqrt()
    norms = norms.where(norms > 0, 1.0)
    return gram / norms / norms[:, None], norms


PROJECTIONS: dict[str, type[Projection]] = {"span": Span, "sequential": Sequential, "cone": Cone}
