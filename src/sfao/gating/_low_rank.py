"""The best factors of low rank, of many matrices at once: left (rank x rows) and right (rank x columns).

Their product left^T right is exact up to rounding when a matrix has no larger rank.
"""

import torch
from torch import Tensor

OVERSAMPLING = 8
POWER_ITERATIONS = 2
#: Sides up to which the eigenvectors of the small Gram matrix, in float64, cost less than a randomised SVD.
SMALL_SIDE = 64


def low_rank(matrices: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the factors of matrices (... x rows x columns)."""
    rows, columns = matrices.shape[-2:]
    if min(rows, columns) > SMALL_SIDE:
        basis = _find_range(matrices, min(rank + OVERSAMPLING, rows, columns))
        left, right = low_rank(basis.mT @ matrices, rank)
        return left @ basis.mT, right
    if rows > columns:
        right, left = low_rank(matrices.mT, rank)
        return left, right
    wide = matrices.double()
    left = torch.linalg.eigh(wide @ wide.mT).eigenvectors[..., -rank:].mT
    return left.to(matrices), (left @ wide).to(matrices)


def low_rank_product(
    left: Tensor, right: Tensor, rank: int, left_gram: Tensor, right_gram: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the factors of left^T right, from factors of a rank that is larger; the product itself is never formed.

    With left = C Q for orthonormal rows Q, the right factors are those of C^T right, which has as few rows as left.
    The Gram matrices left left^T and right right^T, in float64, are all that this takes.
    """
    values, vectors = torch.linalg.eigh(left_gram)
    roots = values.clamp(min=0).sqrt()
    within = vectors * roots[..., None, :]
    inner = within.mT @ right_gram @ within
    top = torch.linalg.eigh(inner).eigenvectors[..., -rank:]
    # Where left has no extent the product has none: nothing is lost by leaving it out.
    significant = roots > 1e-7 * roots[..., -1:]
    inverse = torch.where(significant, 1 / roots, 0.0)
    to_left = (vectors * inverse[..., None, :]) @ top
    return to_left.mT.to(left) @ left, (within @ top).mT.to(right) @ right


def _find_range(matrices: Tensor, size: int) -> Tensor:
    """Return an orthonormal basis of nearly what the largest singular vectors on the left span (Halko et al. 2011).

    torch.svd_lowrank would do, but it draws from torch's global generator, and storing a direction must not change
    the run it belongs to.
    """
    seeded = torch.Generator().manual_seed(0)
    sketch = torch.randn(matrices.shape[-1], size, generator=seeded, dtype=torch.float32, device="cpu").to(matrices)
    basis: Tensor = torch.linalg.qr(matrices @ sketch).Q
    for _ in range(POWER_ITERATIONS):
        basis = torch.linalg.qr(matrices.mT @ basis).Q
        basis = torch.linalg.qr(matrices @ basis).Q
    return basis
