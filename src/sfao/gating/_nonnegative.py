"""The quadratic programme that a projection onto a cone is the dual of."""

import torch
from torch import Tensor

#: Blocks of pivots that may fail to improve before single ones take over.
PATIENCE = 3
MAX_PIVOTS_PER_VARIABLE = 20  # never reached but for rounding


def minimise_nonnegative(gram: Tensor, linear: Tensor) -> Tensor:
    """Return the f >= 0 that minimises f K f / 2 + c f, exactly, for a positive definite K.

    This is the linear complementarity problem f >= 0, K f + c >= 0, their product 0. Solved by block principal
    pivoting, with Murty's single pivots when the blocks stop improving (Judice and Pires 1994).
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
