"""The mathematics of TRGP: the axes of a task, the past tasks that it trusts, and the scaling of their weights.

Axes are orthonormal columns of one basis per layer, which only grows: a task names its own by their numbers.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from sfao.lab.methods.input_subspace import SMALLEST_SINGULAR_VALUE


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


def choose_trusted(gradient: Tensor, spaces: Mapping[int, Tensor], trust: float, most: int) -> list[int]:
    """Return the past tasks whose spaces hold a share of the gradient's length above `trust` (equation 5), in order.

    These are the `most` with the largest shares. `spaces` has the axes of each past task, as columns.
    """
    length = torch.linalg.matrix_norm(gradient)
    shares = {past: float(torch.linalg.matrix_norm(gradient @ axes) / length) for past, axes in spaces.items()}
    ranked = sorted(shares, key=lambda past: -shares[past])[:most]
    return sorted(past for past in ranked if shares[past] > trust)


def scale_rows(rows: Tensor, regions: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return weights scaled along the axes B of trusted tasks by their matrices Q: W + sum of W B (Q - 1) B'.

    This is equation 6.
    """
    scaled = rows
    for axes, scale in regions:
        along = rows @ axes
        scaled = torch.addmm(scaled, along @ scale - along, axes.T)
    return scaled
