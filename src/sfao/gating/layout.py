"""How the gradients of a layer's parameters are laid out as matrices."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Parameters side by side as one matrix: `rows` high, parameter p taking `columns[p]` columns.

    A Linear layer is [dW | db], out x (in + 1); a convolution is out x (in * k * k + 1). Parameters that
    go with no weight matrix (BatchNorm, a scalar) are one row.
    """

    rows: int
    columns: tuple[int, ...]

    @property
    def width(self) -> int:
        return sum(self.columns)

    @property
    def size(self) -> int:
        return self.rows * self.width

    def with_parameter(self, size: int) -> "Layout":
        return Layout(self.rows, (*self.columns, size // self.rows))


def layouts(shapes: Iterable[Sequence[int]]) -> list[Layout]:
    """Group consecutive parameters into matrices: a weight with the vectors that go with its rows.

    A weight joins the matrix before it only directly after a weight of the same height (an LSTM's two);
    vectors that go with no weight share one row.
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
            found[-1] = last.with_parameter(prod(shape))
        else:
            rows = shape[0] if is_weight else 1
            found.append(Layout(rows, (prod(shape) // max(rows, 1),)))
        after_weight = is_weight
    return found


def as_matrices(parameters_layouts: Sequence[Layout], gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Each gradient as its columns of its matrix, in the order its `channels_last` says; a view where strides allow."""
    shapes = [(layout.rows, columns) for layout in parameters_layouts for columns in layout.columns]
    return [
        None if gradient is None else in_memory_order(gradient).reshape(shape)
        for gradient, shape in zip(gradients, shapes, strict=True)
    ]


def channels_last(gradient: Tensor) -> int:
    """The number of channels of a gradient that lies in memory with them last, 0 of any other."""
    if gradient.ndim not in (4, 5) or gradient.is_contiguous() or not gradient.movedim(1, -1).is_contiguous():
        return 0
    return gradient.shape[1]


def in_memory_order(gradient: Tensor) -> Tensor:
    """The gradient with its channels last if that is how it lies in memory."""
    return gradient.movedim(1, -1) if channels_last(gradient) else gradient


def reordered(columns: Tensor, rows: int, before: int, after: int) -> Tensor:
    """Rows of columns in the last dimension, arranged for `before` channels last (0: first), for `after` of them."""
    if before:
        columns = columns.unflatten(-1, (rows, -1, before)).transpose(-1, -2).flatten(-3)
    if after:
        columns = columns.unflatten(-1, (rows, after, -1)).transpose(-1, -2).flatten(-3)
    return columns
