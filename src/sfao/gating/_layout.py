"""The gradients of a layer's parameters, laid out as matrices."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
    width: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", sum(self.columns))
        object.__setattr__(self, "size", self.rows * self.width)

    def with_parameter(self, size: int) -> "Layout":
        return Layout(self.rows, (*self.columns, size // self.rows))


def lay_out(shapes: Iterable[Sequence[int]]) -> list[Layout]:
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


def reorder_columns(columns: Tensor, rows: int, before: int, after: int) -> Tensor:
    """Return columns (last dimension) held for `before` channels last, 0 for first, in the order for `after`."""
    if before:
        columns = columns.unflatten(-1, (rows, -1, before)).transpose(-1, -2).flatten(-3)
    if after:
        columns = columns.unflatten(-1, (rows, after, -1)).transpose(-1, -2).flatten(-3)
    return columns
