"""Gradient projection memory (Saha et al. 2021): no step changes the outputs of a layer on its past inputs.

At the end of a task the inputs of every Linear and Conv2d layer are collected, and their leading singular vectors
join an orthonormal basis M of the layer's input space; from then on its gradient is dW - dW M M'. The authors'
networks have no biases; here a bias is the weight of one more input that is always 1, so it is projected too.

Gradients are projected before the optimizer's step. Momentum keeps them in the complement of M, as it starts anew at a
task boundary and M is fixed within a task. Adam and weight decay don't, so the method forgets more with them.
"""

from typing import ClassVar

import torch
from torch import Tensor

from sfao.lab.methods.input_subspace import SMALLEST_SINGULAR_VALUE, SubspaceMethod, SubspaceOptions
from sfao.lab.methods.search_range import Range, SearchSpace


def grow_basis(basis: Tensor, inputs: Tensor, threshold: float) -> Tensor:
    """Add the fewest directions to the basis that put `threshold` of the inputs' energy into it (equation 9)."""
    outside = inputs - basis @ (basis.T @ inputs)
    vectors, values, _ = torch.linalg.svd(outside, full_matrices=False)
    # On the host: a GPU has no deterministic cumulative sums.
    values, total = values.cpu(), inputs.square().sum().cpu()
    # The share covered before each direction is added: it is needed while that falls short.
    covered = 1 - (values.square().flip(0).cumsum(0).flip(0) / total)
    needed = (covered < threshold) & (values > SMALLEST_SINGULAR_VALUE * total.sqrt())
    added = vectors[:, : min(int(needed.sum()), len(basis) - basis.shape[1])]
    # Once more, for directions short enough to have kept some rounding along the basis.
    return torch.cat([basis, torch.linalg.qr(added - basis @ (basis.T @ added)).Q], dim=1)


def project(rows: Tensor, basis: Tensor) -> Tensor:
    """Return rows of a gradient without their part along the columns of a basis: dW - dW M M' (equation 6)."""
    if basis.shape[0] == basis.shape[1]:  # nothing is left, not even rounding
        return torch.zeros_like(rows)
    return torch.addmm(rows, rows @ basis, basis.T, alpha=-1)


class GPM(SubspaceMethod):
    name = "gpm"
    Options = SubspaceOptions
    search_space: ClassVar[SearchSpace] = {"threshold": Range(0.8, 0.999), "threshold_increase": Range(0, 0.01)}

    def project(self, name: str, rows: Tensor) -> Tensor:
        return project(rows, self.bases[name])

    def store(self, name: str, basis: Tensor, inputs: Tensor, threshold: float) -> None:
        self.bases[name] = grow_basis(basis, inputs, threshold).float()
