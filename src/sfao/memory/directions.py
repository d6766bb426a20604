"""Storages of directions: as dense rows, or as low-rank factors of a layer's gradient matrix."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

#: The gradients of a matrix, one per parameter; None for a parameter without one.
Matrices = Sequence[Tensor | None]
#: Parameters side by side in one matrix: its rows, and the columns that each parameter takes.
Layout = tuple[int, tuple[int, ...]]

#: Columns handled at a time where rows must be widened: the copy then stays in the cache of a CPU, or fits on a GPU.
CHUNKS = {"cpu": 2**14, "cuda": 2**18}
OVERSAMPLING = 8
POWER_ITERATIONS = 2
#: Sides up to which the eigenvectors of the small Gram matrix, in float64, cost less than a randomized SVD.
SMALL_SIDE = 64


def lay_out(shapes: Iterable[Sequence[int]]) -> list[Layout]:
    """Return the matrices of consecutive parameters: a weight together with the vectors along its rows.

    A Linear layer is [dW | db], out x (in + 1); a convolution is out x (in * k * k + 1). A weight joins the matrix
    before it only directly after a weight of the same height (an LSTM's two). Vectors without a weight share one row.
    """
    found: list[Layout] = []
    after_weight = False
    for shape in shapes:
        is_weight = len(shape) >= 2
        height, columns = found[-1] if found else (0, ())
        if is_weight:
            joins = after_weight and height == shape[0]
        else:
            joins = height == 1 or (height > 1 and height == prod(shape))
        rows = height if joins else shape[0] if is_weight else 1
        found[len(found) - joins :] = [(rows, (*(columns if joins else ()), prod(shape) // max(rows, 1)))]
        after_weight = is_weight
    return found


class DenseDirections:
    """Stored directions of the parameters of one matrix: a row per direction and parameter.

    Slot i is entry i of the first dimension of every tensor. Methods leave out parameters whose gradient is None, or
    that aren't active.

    Args:
        layout: the matrix.
        dtype: float32 or bfloat16.
        rank: of factors.
        device: of the parameters.
    """

    kind = "dense"

    def __init__(self, layout: Layout, dtype: torch.dtype, rank: int, device: torch.device) -> None:
        (self.rows, self.columns), self.dtype, self.rank = layout, dtype, rank
        #: Tensors with room for directions, and views of the slots in use.
        self.tensors = [torch.zeros(0, *shape, dtype=dtype, device=device) for shape in self.slot_shapes()]
        self.held = self.tensors

    def slot_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes that one direction takes in each tensor."""
        return [(self.rows * columns,) for columns in self.columns]

    def dots(self, gradients: Matrices, index: Tensor | None = None) -> Tensor:
        """Return the inner products of the gradients with all directions, or with those of `index`."""
        pairs = zip(self.held, gradients, strict=True)
        return add_up([_multiply(rows, own.view(-1), index) for rows, own in pairs if own is not None])

    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        """Subtract the weighted sum of the directions from the gradients, in place."""
        for rows, gradient in zip(self.held, gradients, strict=True):
            if gradient is not None:
                _subtract_combination_(gradient.view(-1), rows, weights.to(gradient.dtype))

    def gram(self, active: Sequence[bool]) -> Tensor:
        """Return the inner products in float64 of all directions, over the active parameters."""
        count = len(self.held[0])
        total = torch.zeros(count, count, dtype=torch.float64, device=self.held[0].device)
        for rows, is_active in zip(self.held, active, strict=True):
            for columns in _split_columns(rows) if is_active else ():
                wide = rows[:, columns].double()
                total.addmm_(wide, wide.T)
        return total

    def encode(self, gradients: Matrices, scale: float) -> list[Tensor]:
        """Return what a slot holds for gradients times a scale."""
        pairs = zip(gradients, self.tensors, strict=True)
        return [
            rows.new_zeros(rows.shape[1:]) if gradient is None else (gradient * scale).view(-1).to(self.dtype)
            for gradient, rows in pairs
        ]

    def grow(self, layout: Layout) -> list[Tensor]:
        """Follow parameters with more rows; return the tensors, in which all directions are zero there."""
        self.rows, self.columns = layout
        pairs = zip(self.tensors, self.slot_shapes(), strict=True)
        return [pad(tensor, (0, shape[-1] - tensor.shape[-1])) for tensor, shape in pairs]


def add_up(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of a few tensors, quicker than by stacking them."""
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total


def _split_columns(rows: Tensor) -> Iterator[slice]:
    width = CHUNKS.get(rows.device.type, CHUNKS["cpu"])
    return (slice(start, start + width) for start in range(0, rows.shape[1], width))


def _multiply(rows: Tensor, vector: Tensor, index: Tensor | None) -> Tensor:
    if index is not None:
        if rows.device.type != "cpu":
            return rows[index.to(rows.device)].to(vector.dtype) @ vector
        # Row by row: gathering the rows first would write and read them once more.
        return torch.stack([rows[slot].to(vector.dtype) @ vector for slot in index.tolist()])
    if rows.dtype != vector.dtype:
        parts = [_multiply(rows[:, part].to(vector.dtype), vector[part], None) for part in _split_columns(rows)]
        return torch.stack(parts).sum(0)
    # A product with a vector runs on one core, a batch of them on all: deal the rows out to the cores.
    cores = _count_cores(rows)
    share = len(rows) // cores
    dealt = rows[: cores * share].view(cores, share, len(vector))
    products = torch.bmm(vector.expand(cores, 1, -1), dealt.mT).view(-1)
    return products if cores == 1 else torch.cat([products, rows[cores * share :] @ vector])


def _subtract_combination_(vector: Tensor, rows: Tensor, weights: Tensor) -> None:
    if rows.dtype != vector.dtype:
        for part in _split_columns(rows):
            _subtract_combination_(vector[part], rows[:, part].to(vector.dtype), weights)
        return
    cores = _count_cores(rows)
    share = len(vector) // cores
    dealt = rows[:, : cores * share].view(len(rows), cores, share).transpose(0, 1)
    vector[: cores * share].view(cores, 1, share).baddbmm_(weights.expand(cores, 1, -1), dealt, alpha=-1)
    if cores > 1:
        vector[cores * share :].addmv_(rows[:, cores * share :].T, weights, alpha=-1)


def _count_cores(tensor: Tensor) -> int:
    return torch.get_num_threads() if tensor.device.type == "cpu" else 1


# -- Factors ---------------------------------------------------------------------------------------------


class FactoredDirections(DenseDirections):
    """Sums over r of left[r] x right[r]: left factors in the first tensor, then right factors of each parameter.

    The parameters of a matrix share their rows, hence the left factors; [dW | db] is never concatenated.
    """

    kind = "factored"

    def slot_shapes(self) -> list[tuple[int, ...]]:
        return [(self.rank, size) for size in (self.rows, *self.columns)]

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
        pairs = zip(gradients, self.columns, strict=True)
        filled = [known.new_zeros(self.rows, columns) if own is None else own for own, columns in pairs]
        left, right = find_factors(torch.cat(filled, 1), self.rank)
        # Equal norms on both sides, factor by factor: neither then leaves the range of a narrow dtype.
        lengths = [torch.linalg.vector_norm(side, dim=-1, keepdim=True, dtype=torch.float64) for side in (left, right)]
        root = (lengths[0] * lengths[1] * scale).sqrt()
        left, right = (
            (side * torch.where(length > 0, root / length, 0.0).to(side.dtype)).to(self.dtype)
            for side, length in zip((left, right), lengths, strict=True)
        )
        return [left, *right.split(list(self.columns), dim=1)]


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


STORAGES = {kind.kind: kind for kind in (DenseDirections, FactoredDirections)}
MEMORY_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def make_parts(
    shapes: Sequence[Sequence[int]], options: Mapping[str, Any], device: torch.device
) -> list[DenseDirections]:
    """Return the directions of each matrix of parameters with these shapes, none stored so far.

    A matrix that factors wouldn't make smaller is stored dense.
    """
    dtype, rank = MEMORY_DTYPES[options["memory_dtype"]], options["rank"]
    parts = []
    for rows, columns in lay_out(shapes):
        is_smaller = rank * (rows + sum(columns)) < rows * sum(columns)
        kind = STORAGES[options["storage"]] if is_smaller else DenseDirections
        parts.append(kind((rows, columns), dtype, rank, device))
    return parts
