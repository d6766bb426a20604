"""The interface of the storages: directions of one matrix of a layer."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

#: The gradients of a matrix, one per parameter; None for a parameter without one.
Matrices = Sequence[Tensor | None]


@dataclass(frozen=True)
class Layout:
    """Parameters side by side in one matrix: `rows` high, parameter p taking `columns[p]` columns.

    A Linear layer is [dW | db], out x (in + 1); a convolution is out x (in * k * k + 1). Parameters without a weight
    matrix (BatchNorm, a scalar) share one row.
    """

    rows: int
    columns: tuple[int, ...]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(rows, columns) of each parameter."""
        return [(self.rows, columns) for columns in self.columns]

    @property
    def size(self) -> int:
        return self.rows * sum(self.columns)


def lay_out(shapes: Iterable[Sequence[int]]) -> list[Layout]:
    """Return the matrices of consecutive parameters: a weight together with the vectors along its rows.

    A weight joins the matrix before it only directly after a weight of the same height (an LSTM's two). Vectors without
    a weight share one row.
    """
    found: list[Layout] = []
    after_weight = False
    for shape in shapes:
        is_weight = len(shape) >= 2
        last = found[-1] if found else Layout(0, ())
        if is_weight:
            joins = after_weight and last.rows == shape[0]
        else:
            joins = last.rows == 1 or (last.rows > 1 and last.rows == prod(shape))
        if joins:
            found[-1] = Layout(last.rows, (*last.columns, prod(shape) // last.rows))
        else:
            rows = shape[0] if is_weight else 1
            found.append(Layout(rows, (prod(shape) // max(rows, 1),)))
        after_weight = is_weight
    return found


class Directions(ABC):
    """Stored directions of the parameters of one matrix. Slot i is entry i of the first dimension of every tensor.

    Methods leave out parameters whose gradient is None, or that aren't active.

    Args:
        layout: the matrix.
        dtype: float32 or bfloat16.
        rank: of factors.
        device: of the parameters.
    """

    kind: ClassVar[str]

    def __init__(self, layout: Layout, dtype: torch.dtype, rank: int, device: torch.device) -> None:
        self.layout, self.dtype, self.rank = layout, dtype, rank
        #: Tensors with room for directions, and views of the slots in use.
        self.tensors = [torch.zeros(0, *shape, dtype=dtype, device=device) for shape in self.slot_shapes()]
        self.held = self.tensors

    @abstractmethod
    def slot_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes that one direction takes in each tensor."""

    @abstractmethod
    def dots(self, gradients: Matrices, index: Tensor | None = None) -> Tensor:
        """Return the inner products of the gradients with all directions, or with those of `index`."""

    @abstractmethod
    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        """Subtract the weighted sum of the directions from the gradients, in place."""

    @abstractmethod
    def gram(self, active: Sequence[bool]) -> Tensor:
        """Return the inner products in float64 of all directions, over the active parameters."""

    @abstractmethod
    def encode(self, gradients: Matrices, scale: float) -> list[Tensor]:
        """Return what a slot holds for gradients times a scale."""

    def grow(self, layout: Layout) -> list[Tensor]:
        """Follow parameters with more rows; return the tensors, in which all directions are zero there."""
        self.layout = layout
        pairs = zip(self.tensors, self.slot_shapes(), strict=True)
        return [pad(tensor, (0, shape[-1] - tensor.shape[-1])) for tensor, shape in pairs]

    @property
    def bytes_per_direction(self) -> int:
        return sum(prod(shape) * self.dtype.itemsize for shape in self.slot_shapes())
