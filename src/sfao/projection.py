"""Projections off the remembered directions, in terms of their small Gram matrix.

A projection is u = g - sum_i w_i b_i. Each class turns the inner products c_i = <g, b_i> into the weights w. It sees
the Gram matrix K of the directions (float64) and never the directions themselves, so it works for every storage.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

# Singular values of the unit directions below this are rounding of the float32 they are stored in. Leaving such an
# axis out leaves at most 3e-6 of the gradient along a stored direction.
SMALLEST_SINGULAR_VALUE = 3e-6
#: Blocks of pivots that may fail to improve before single pivots take over.
PATIENCE = 3
MAX_PIVOTS_PER_VARIABLE = 20  # reached only through rounding


class Projection:
    """Weights of the directions that a projection subtracts.

    Args:
        gram: the Gram matrix of the directions.
        arrivals: for each direction, a number that grows with the time it was stored.
    """

    #: True if the removed part is orthogonal to the rest, so that |u|^2 = |g|^2 - <c, w>.
    is_orthogonal = True
    #: The dimension of the subspace that is projected away; 0 if there is none.
    rank = 0

    def __init__(self, gram: Tensor, arrivals: Sequence[int] = ()) -> None:
        raise NotImplementedError

    def weights(self, dots: Tensor) -> Tensor:
        """Return the weights w of the directions, given the inner products c."""
        raise NotImplementedError

    def removed_square(self, dots: Tensor, weights: Tensor) -> Tensor:
        """Return |g|^2 - |u|^2."""
        return dots @ weights


class Span(Projection):
    """Onto the orthogonal complement of the span: w = K^+ c (equation 6 and the appendix of the paper)."""

    def __init__(self, gram: Tensor, arrivals: Sequence[int] = ()) -> None:
        unit, norms = _normalize(gram)
        values, vectors = torch.linalg.eigh(unit)
        kept = values > SMALLEST_SINGULAR_VALUE**2
        self.rank = int(kept.sum())
        # Two products with the scaled eigenvectors, not one with K^+: its entries would be rounded at the size of
        # the largest, 1 / SMALLEST_SINGULAR_VALUE squared.
        self.scaled: Tensor = vectors[:, kept] / values[kept].sqrt() / norms[:, None]

    def weights(self, dots: Tensor) -> Tensor:
        return self.scaled @ (self.scaled.T @ dots)


class Sequential(Projection):
    """One direction after the other, as the released code does. This isn't a projection unless they are orthogonal.

    Subtracting b_i (b_i . u_i) / |b_i|^2 in turn means K_ii w_i = c_i - sum over j < i of K_ij w_j: a triangular solve.
    """

    is_orthogonal = False

    def __init__(self, gram: Tensor, arrivals: Sequence[int]) -> None:
        self._gram = gram
        self._order = torch.tensor(sorted(range(len(arrivals)), key=arrivals.__getitem__), device=gram.device)
        self._triangle = gram[self._order][:, self._order].tril()
        squares = self._triangle.diagonal()
        squares[squares == 0] = 1.0  # a direction may be zero in the active parameters

    def weights(self, dots: Tensor) -> Tensor:
        ordered = torch.linalg.solve_triangular(self._triangle, dots[self._order, None], upper=False)
        return torch.empty_like(dots).index_copy_(0, self._order, ordered[:, 0])

    def removed_square(self, dots: Tensor, weights: Tensor) -> Tensor:
        return (2 * dots - self._gram @ weights) @ weights


class Cone(Projection):
    """Onto the cone of steps that increase no represented loss, <u, b_i> >= 0 (equation 5 of the paper).

    With forces f = -w, the dual is the minimum of f K f / 2 + c f over f >= 0.
    """

    def __init__(self, gram: Tensor, arrivals: Sequence[int] = ()) -> None:
        unit, self._norms = _normalize(gram)
        # A slight ridge makes K positive definite, which guarantees that pivoting ends.
        ridge = SMALLEST_SINGULAR_VALUE**2 * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        self._gram = unit + ridge

    def weights(self, dots: Tensor) -> Tensor:
        return -minimize_nonnegative(self._gram, dots / self._norms) / self._norms


PROJECTIONS: dict[str, type[Projection]] = {"span": Span, "sequential": Sequential, "cone": Cone}


def _normalize(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Gram matrix of the unit directions, and the norms; a direction may be zero where it is active."""
    norms = gram.diagonal().sqrt()
    norms = norms.where(norms > 0, 1.0)
    return gram / norms / norms[:, None], norms


def minimize_nonnegative(gram: Tensor, linear: Tensor) -> Tensor:
    """Return the f >= 0 that minimizes f K f / 2 + c f, exactly, for a positive definite K.

    This is the linear complementarity problem f >= 0, K f + c >= 0, their product 0. Solved by block principal
    pivoting, with Murty's single pivots when the blocks stop improving (Judice and Pires 1994).

    Args:
        gram: K.
        linear: c.
    """
    passive = torch.zeros_like(linear, dtype=torch.bool)
    forces, slacks = torch.zeros_like(linear), linear
    fewest, patience = len(linear) + 1, PATIENCE
    for _ in range(MAX_PIVOTS_PER_VARIABLE * len(linear)):
        noise = 1e-12 * torch.where(passive, forces.abs().max(), linear.abs().max())
        wrong = torch.where(passive, forces, slacks) < -noise
        count = int(wrong.sum())
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, PATIENCE
        elif patience > 0:
            patience -= 1
        else:
            wrong = torch.zeros_like(wrong).index_fill_(0, wrong.nonzero()[-1], True)
        passive = passive ^ wrong
        forces, slacks = _solve(gram, linear, passive)
    return forces.clamp(min=0)


def _solve(gram: Tensor, linear: Tensor, passive: Tensor) -> tuple[Tensor, Tensor]:
    """Return the forces where those outside `passive` are 0 and the slacks inside it are 0."""
    forces = torch.zeros_like(linear)
    if passive.any():
        inside = gram[passive][:, passive]
        forces[passive] = torch.cholesky_solve(-linear[passive, None], torch.linalg.cholesky(inside))[:, 0]
    return forces, gram @ forces + linear
