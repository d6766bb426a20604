"""The mathematics of TRGP: the axes of a task, the past tasks that it trusts, and the scaling of their weights.

Axes are orthonormal columns of one basis per layer, which only grows: a task names its own by their numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sfao.lab.methods.input_subspace import SMALLEST_SINGULAR_VALUE


class Region(NamedTuple):
    """The axes of a trusted task, as columns, and the matrix that scales the weights along them."""

    axes: Tensor
    scale: Tensor


def choose_axes(basis: Tensor, inputs: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return the basis with the axes that these inputs (columns) add to it, and the numbers of all axes they need.

    Axes of the basis and principal axes of what lies outside it are ranked together and added, those with most of the
    inputs' energy first, until `threshold` of it is covered.
    """
    along = basis.T @ inputs
    vectors, values, _ = torch.linalg.svd(inputs - basis @ along, full_matrices=False)
    # On the host: a GPU has no deterministic cumulative sums.
    energies, total = torch.cat([along.square().sum(1), values.square()]).cpu(), inputs.square().sum().cpu()
    order = energies.argsort(descending=True, stable=True)
    ranked = energies[order]
    is_needed = (ranked.cumsum(0) - ranked < threshold * total) & (ranked > SMALLEST_SINGULAR_VALUE**2 * total)
    chosen = order[is_needed]
    old, new = chosen[chosen < basis.shape[1]], chosen[chosen >= basis.shape[1]] - basis.shape[1]
    added = vectors[:, new[: len(basis) - basis.shape[1]].to(vectors.device)]
    # Once more, for axes short enough to have kept some rounding along the basis.
    added = torch.linalg.qr(added - basis @ (basis.T @ added)).Q
    grown = torch.cat([basis, added], dim=1)
    return grown, torch.cat([old, torch.arange(basis.shape[1], grown.shape[1])])


def measure_shares(gradient: Tensor, spaces: Sequence[Tensor]) -> list[float]:
    """Return the share of a gradient's length that lies in each of these spaces (equation 5)."""
    length = torch.linalg.matrix_norm(gradient)
    if not length > 0:
        return [0.0] * len(spaces)
    return [float(torch.linalg.matrix_norm(gradient @ axes) / length) for axes in spaces]


def choose_trusted(shares: Sequence[float], trust: float, most: int) -> list[int]:
    """Return the numbers of the past tasks with the largest shares above `trust`, at most so many, in order."""
    ranked = sorted(range(len(shares)), key=lambda task: -shares[task])[:most]
    return sorted(task for task in ranked if shares[task] > trust)


def scale_rows(rows: Tensor, regions: Sequence[Region]) -> Tensor:
    """Return weights whose part along the axes of trusted tasks is scaled: W + sum of W B (Q - 1) B' (equation 6)."""
    scaled = rows
    for axes, scale in regions:
        along = rows @ axes
        scaled = torch.addmm(scaled, along @ scale - along, axes.T)
    return scaled


def differentiate_scale(rows: Tensor, axes: Tensor, gradient_along: Tensor) -> Tensor:
    """Return the gradient of a scale, (W B)' G B, from that of the scaled weights along the same axes, G B."""
    return (rows @ axes).T @ gradient_along
