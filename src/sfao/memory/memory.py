"""The memory of one layer: products of a gradient with its directions, and the projection off them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from math import hypot, isfinite
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from sfao.decision import NonFiniteGradient
from sfao.memory.directions import DenseDirections, Layout, Matrices, add_up
from sfao.memory.slots import Slots
from sfao.projection import PROJECTIONS, Projection

# Between these norms, squares are far from the limits of float32. Other gradients are rescaled to norm 1.
SMALL, LARGE = 1e-12, 1e12
# Patterns of active parameters to keep products for. With one head per task, a few patterns take turns.
MAX_PATTERNS = 16

#: Settings of the precision of float32 products.
PRECISIONS: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
#: True for each parameter that has a gradient.
Active = tuple[bool, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Gram:
    """Products among the directions, over the active parameters."""

    matrix: Tensor
    #: 1 / |b|, and 0 for a direction that is zero in the active parameters: it constrains nothing.
    inverse_norms: Tensor
    #: True if some inverse norm is 0.
    has_zero: bool
    #: Projections, by name, that were used so far.
    projections: dict[str, Projection] = field(default_factory=dict)


class Memory:
    """Directions of the parameters of one layer.

    Rows are written in place. The slot table is a value that is replaced last. Gradients come as matrices, one per
    parameter, None for parameters without one.
    """

    def __init__(self) -> None:
        self.parts: list[DenseDirections] = []
        self.slots = Slots()
        #: By parameter, True if its directions are stored with the channels last.
        self.channels_last: tuple[bool, ...] = ()
        #: By parameter, rows and columns; and the number of entries of all.
        self.shapes: list[tuple[int, int]] = []
        self.size = 0
        self._grams: dict[Active, Gram] = {}

    def __len__(self) -> int:
        return len(self.slots.tasks)

    @property
    def bytes(self) -> int:
        """Bytes of the tensors that hold directions."""
        return sum(tensor.nbytes for part in self.parts for tensor in part.tensors)

    # -- Products --------------------------------------------------------------------------------------

    def dots(self, gradients: Matrices, index: Tensor | None = None) -> Tensor:
        """Return inner products with the directions of `index`, or with all, in float64."""
        return add_up([part.dots(own, index) for part, own in self.by_part(gradients)]).double()

    def extreme_dots(self, dots: Tensor, index: Tensor | None, active: Active) -> tuple[Tensor, ...]:
        """Return the least and the greatest inner product with a unit direction of `index`.

        Directions that are zero in the active parameters constrain nothing; if there are no others, return nothing.
        """
        gram = self.gram(active)
        norms = gram.inverse_norms if index is None else gram.inverse_norms[index]
        if gram.has_zero:
            dots, norms = dots[norms > 0], norms[norms > 0]
        return tuple(torch.aminmax(dots * norms)) if len(dots) else ()

    def gram(self, active: Active) -> Gram:
        """Return the products among directions, computed again only after directions have changed."""
        if active not in self._grams:
            if len(self._grams) >= MAX_PATTERNS:
                self._grams = {}
            matrix = torch.stack([part.gram(own) for part, own in self.by_part(active)]).sum(0)
            squares = matrix.diagonal()
            norms = torch.where(squares > 0, squares.rsqrt(), 0.0)
            self._grams[active] = Gram(matrix, norms, bool((norms == 0).any()))
        return self._grams[active]

    def projection(self, kind: str, active: Active) -> Projection:
        """Return the projection off the directions."""
        gram = self.gram(active)
        if kind not in gram.projections:
            gram.projections[kind] = PROJECTIONS[kind](gram.matrix, self.slots.arrivals)
        return gram.projections[kind]

    def spans_everything(self) -> bool:
        """Return True if the directions span all parameters, so that a projection leaves nothing."""
        has_enough = len(self) >= self.size > 0
        return has_enough and self.projection("span", (True,) * len(self.shapes)).rank >= self.size

    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        """Subtract the weighted sum of the directions from the gradients, in place."""
        for part, own in self.by_part(gradients):
            part.subtract_(own, weights)

    def by_part(self, values: Sequence[T]) -> Iterator[tuple[DenseDirections, Sequence[T]]]:
        """Yield each part with the values, one per parameter, of its parameters, unless all are None or False."""
        start = 0
        for part in self.parts:
            end = start + len(part.columns)
            own = values[start:end]
            if any([value is not None and value is not False for value in own]):  # noqa: C419, quicker than a generator
                yield part, own
            start = end

    def as_matrices(self, gradients: Sequence[Tensor | None], scale: float = 1.0) -> list[Tensor | None]:
        """Return gradients times a scale as matrices; the directions follow them to another device."""
        device = next(gradient.device for gradient in gradients if gradient is not None)
        if self.parts[0].tensors[0].device != device:
            self.commit([[tensor.to(device) for tensor in part.tensors] for part in self.parts], self.slots)
        places = zip(gradients, self.shapes, self.channels_last, strict=True)
        return [None if own is None else as_matrix(own, shape, last, scale) for own, shape, last in places]

    # -- Changing --------------------------------------------------------------------------------------

    def add_part(self, part: DenseDirections, channels_last: Sequence[bool]) -> None:
        """Add parameters; the directions stored so far are zero in them."""
        self.parts.append(part)
        self.channels_last += tuple(channels_last)
        room = len(self.parts[0].tensors[0])
        self.commit([make_room(part.tensors, room) for part in self.parts], self.slots)

    def grow(self, layouts: Sequence[Layout]) -> None:
        """Follow parameters with more rows, in which all directions are zero."""
        pairs = zip(self.parts, layouts, strict=True)
        self.commit([part.grow(layout) for part, layout in pairs], self.slots)

    def encode(self, gradients: Matrices, norm: float) -> list[list[Tensor]]:
        """Return what a slot holds for the direction of gradients of this norm, by part."""
        scale = find_scale(norm)
        given = dict(self.by_part(self.as_matrices(gradients, scale)))
        return [
            part.encode(given[part], 1 / (norm * scale))
            if part in given
            else [tensor.new_zeros(tensor.shape[1:]) for tensor in part.tensors]
            for part in self.parts
        ]

    def store(self, directions: dict[int, list[list[Tensor]]], slots: Slots, capacity: int) -> None:
        """Write directions, by slot, in place; the slot table, which may have more slots, is replaced last.

        Directions are dropped as soon as they are written: two copies of a large memory might not fit.
        """
        room, count = len(self.parts[0].tensors[0]), len(slots.tasks)
        room = room if count <= room else max(count, min(capacity, 1 << (count - 1).bit_length()))
        tensors = [make_room(part.tensors, room) for part in self.parts]
        while directions:
            slot, direction = directions.popitem()
            for part, values in zip(tensors, direction, strict=True):
                for tensor, value in zip(part, values, strict=True):
                    tensor[slot] = value
        self.commit(tensors, slots)

    def commit(self, tensors: Sequence[Sequence[Tensor]], slots: Slots) -> None:
        """Replace the tensors of all parts, and the slot table last."""
        for part, own in zip(self.parts, tensors, strict=True):
            part.tensors, part.held = list(own), [tensor[: len(slots.tasks)] for tensor in own]
        self.shapes = [(part.rows, columns) for part in self.parts for columns in part.columns]
        self.size = sum(rows * columns for rows, columns in self.shapes)
        self._grams, self.slots = {}, slots

    def clone(self) -> Self:
        """Return a memory with copies of the directions."""
        twin = copy(self)
        twin.parts = [copy(part) for part in self.parts]
        twin.commit([[tensor.clone() for tensor in part.tensors] for part in self.parts], self.slots)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_grams": {}}


def make_room(tensors: Sequence[Tensor], room: int) -> list[Tensor]:
    """Return tensors with at least this many slots."""
    missing = room - len(tensors[0])
    return [torch.cat([t, t.new_zeros(missing, *t.shape[1:])]) if missing > 0 else t for t in tensors]


# -- Gradients -------------------------------------------------------------------------------------------


def is_channels_last(tensor: Tensor) -> bool:
    """Return True if the channels of a convolution's weight are last in memory."""
    return tensor.ndim in (4, 5) and not tensor.is_contiguous() and tensor.movedim(1, -1).is_contiguous()


def as_matrix(gradient: Tensor, shape: tuple[int, int], channels_last: bool = False, scale: float = 1.0) -> Tensor:
    """Return a gradient times a scale as a matrix in float32 or float64; a view where strides and dtype allow."""
    dtype = torch.float64 if gradient.dtype == torch.float64 else torch.float32
    working = gradient.to(dtype) if scale == 1 else (gradient.double() * scale).to(dtype)
    return (working.movedim(1, -1) if channels_last else working).reshape(shape)


def write_matrix(matrix: Tensor, gradient: Tensor, channels_last: bool = False, scale: float = 1.0) -> None:
    """Write a matrix back to the gradient that it was made from, unless they share memory."""
    if scale != 1 or matrix.data_ptr() != gradient.data_ptr():
        place = gradient.movedim(1, -1) if channels_last else gradient
        place.copy_((matrix if scale == 1 else matrix.double() / scale).view(place.shape))


def measure_norms(tensors: list[Tensor]) -> list[Tensor]:
    """Return the norms of tensors, in float32 or float64."""
    dtypes = [torch.float64 if tensor.dtype == torch.float64 else torch.float32 for tensor in tensors]
    if len(set(dtypes)) == 1:
        return list(torch._foreach_norm(tensors, 2, dtypes[0]))
    return [torch.linalg.vector_norm(t, dtype=dtype) for t, dtype in zip(tensors, dtypes, strict=True)]


def check_norm(name: str, tensors: Sequence[Tensor], norm: float) -> float:
    """Return the norm of a layer's gradients, in float64 for extreme sizes; raise a NonFiniteGradient if not finite."""
    if SMALL < norm < LARGE:
        return norm
    norm = hypot(*(float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) for tensor in tensors))
    if not isfinite(norm):
        raise NonFiniteGradient(f"the gradient of layer {name!r} must be finite, got {norm}")
    return norm


def find_scale(norm: float) -> float:
    """Return the factor to work with on gradients of this norm: 1 but for extreme sizes."""
    return 1.0 if SMALL < norm < LARGE or norm == 0 else 1.0 / norm


@contextmanager
def full_precision(device: str) -> Iterator[None]:
    """Turn off autograd, autocast, and matrix products that round more than float32."""
    reduced = [(own, own.fp32_precision) for own in PRECISIONS if own.fp32_precision not in ("ieee", "none")]
    with ExitStack() as stack:
        for own, precision in reduced:
            stack.callback(setattr, own, "fp32_precision", precision)
            own.fp32_precision = "ieee"
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.no_grad())
        yield
