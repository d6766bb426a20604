"""The matrices of layers with input spaces: their tensors, their coordinates along the axes, and their answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfao.gating.subspace import Subspace
from sfao.optim._host_path import as_matrix, count_channels_last, in_memory_order
from sfao.optim.layers import Layer

#: The least length of answers that a drift is measured by, and of parameters that a path is.
SMALLEST_LENGTH = torch.finfo(torch.float32).tiny ** 0.5


class Part:
    """A matrix of a layer with an input space: its parameters by number, and the place of its axes in the tables."""

    def __init__(self, space: Subspace, parameters: slice, axes: slice, dtype: torch.dtype) -> None:
        self.space, self.parameters, self.axes = space, parameters, axes
        #: The length of the answers that a drift is relative to.
        self.size: Tensor = torch.linalg.vector_norm(space.answers, dtype=dtype).clamp_min(SMALLEST_LENGTH)
        #: The rows that are softened, None for all.
        self.rows: Tensor | None = None if space.is_used_whole else space.used_rows.nonzero()[:, 0]
        self.coordinates = torch.empty(0)
        self._cut = space.axes, self._split()

    def arrange(self, tensors: Sequence[Tensor | None]) -> None:
        """Hold the space in the order in which these tensors lie in memory."""
        orders = [
            held if tensor is None else count_channels_last(tensor)
            for tensor, held in zip(tensors, self.space.channels_last, strict=True)
        ]
        self.space.arrange(orders)
        if self._cut[0] is not self.space.axes:
            self._cut = self.space.axes, self._split()

    def _split(self) -> list[Tensor]:
        return list(self.space.axes.split(self.space.layout.columns, 1))

    @property
    def cut_axes(self) -> list[Tensor]:
        """The axes, cut into the columns of each parameter."""
        return self._cut[1]


@dataclass(frozen=True)
class Seen:
    """The tensors of a part, and as matrices."""

    part: Part
    tensors: list[Tensor | None]
    matrices: list[Tensor | None]


def find_parts(layer: Layer, device: torch.device, dtype: torch.dtype) -> Iterator[Part]:
    first, start = 0, 0
    for space in layer.spaces:
        parameters = slice(first, first + len(space.layout.columns))
        first = parameters.stop
        if not space.is_empty:
            space.to(device)
            yield Part(space, parameters, slice(start, start + len(space.axes)), dtype)
            start += len(space.axes)


def look(parts: Sequence[Part], tensors: list[Tensor | None]) -> list[Seen]:
    """Measure the coordinates of a layer's tensors along its axes; return what there is to see."""
    for part in parts:
        part.arrange(tensors[part.parameters])
    seen = see(parts, tensors)
    for one in seen:
        pairs = zip(one.matrices, one.part.cut_axes, strict=True)
        _multiply([(m, along.to(m.dtype)) for m, along in pairs if m is not None], one.part.coordinates)
    if len(seen) < len(parts):
        there = [one.part for one in seen]
        for part in parts:
            if part not in there:
                part.coordinates.zero_()
    return seen


def see(parts: Sequence[Part], tensors: list[Tensor | None]) -> list[Seen]:
    """Return the tensors of parts as matrices of the rows that are softened, where there are some."""
    seen = []
    for part in parts:
        of_part = tensors[part.parameters]
        matrices = [None if tensor is None else as_matrix(tensor, part.space.layout.rows) for tensor in of_part]
        if part.rows is not None:
            matrices = [None if matrix is None else matrix[part.rows] for matrix in matrices]
        if any(matrix is not None for matrix in matrices):
            seen.append(Seen(part, of_part, matrices))
    return seen


def _multiply(pairs: Sequence[tuple[Tensor, Tensor]], out: Tensor) -> None:
    """Write the sum of A B' over pairs (A, B) of matrices."""
    (first, second), *others = pairs
    torch.mm(first, second.T, out=out)
    for first, second in others:
        out.addmm_(first, second.T)


def answer(part: Part, parameters: Sequence[Tensor]) -> Tensor:
    """Return what the layer answers to the probes now."""
    space = part.space
    weights = [
        as_matrix(parameter.movedim(1, -1) if channels else parameter, space.layout.rows).float()
        for parameter, channels in zip(parameters, space.channels_last, strict=True)
    ]
    return space.answer(weights)


def remove(seen: Seen, scale: Tensor) -> None:
    """Scale the tensors, and take from them what their coordinates say."""
    weighted = seen.part.coordinates
    for tensor, matrix, along in zip(seen.tensors, seen.matrices, seen.part.cut_axes, strict=True):
        if tensor is None or matrix is None:
            continue
        matrix.mul_(scale.to(matrix.dtype)).addmm_(weighted, along.to(matrix.dtype), alpha=-1)
        if seen.part.rows is not None:
            place = in_memory_order(tensor)
            place.index_copy_(0, seen.part.rows, matrix.view(-1, *place.shape[1:]).to(place.dtype))
        elif matrix.data_ptr() != tensor.data_ptr():
            place = in_memory_order(tensor)
            place.copy_(matrix.view(place.shape))
