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
#: Rows in use that take less than this of a gradient's length are not learnt: weight decay moves them too.
SMALLEST_COMPARED = 3e-3
#: A layer, or its answers, that is smaller than this share of a fresh one counts as that: adapters begin at zero.
SMALL_SHARE = 0.1


def estimate_fresh_length(rows: int) -> float:
    """Return about the length that a layer of torch with so many rows has before it has learnt anything."""
    return float((rows / 3) ** 0.5)


class Part:
    """A matrix of a layer with an input space: its parameters by number, and the place of its axes in the tables."""

    def __init__(self, space: Subspace, parameters: slice, axes: slice) -> None:
        self.space, self.parameters, self.axes = space, parameters, axes
        #: The length of the answers that a drift is relative to.
        self.size = torch.empty(0)
        #: Which rows past tasks depend on, as a column; None for all.
        self.used_rows: Tensor | None = None if space.is_used_whole else space.used_rows[:, None]
        self.coordinates = torch.empty(0)
        self._cut = space.axes, self._split()

    def set_size(self, length: Tensor) -> None:
        """Be told how long the answers of all rows are; those of a layer of nearly zero count as a fresh one's."""
        fresh = SMALL_SHARE * estimate_fresh_length(self.space.rows) / self.space.layout.width**0.5
        probes = torch.linalg.vector_norm(self.space.probes, dtype=length.dtype)
        self.size = torch.maximum(length, probes * fresh).clamp_min(SMALLEST_LENGTH)

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


def find_parts(layer: Layer, device: torch.device) -> Iterator[Part]:
    first, start = 0, 0
    for space in layer.spaces:
        parameters = slice(first, first + len(space.layout.columns))
        first = parameters.stop
        if not space.is_empty:
            space.to(device)
            yield Part(space, parameters, slice(start, start + len(space.axes)))
            start += len(space.axes)


def look(parts: Sequence[Part], tensors: list[Tensor | None]) -> list[Seen]:
    """Measure the coordinates of a layer's tensors along its axes; return what there is to see."""
    seen = []
    for part in parts:
        of_part = tensors[part.parameters]
        part.arrange(of_part)
        matrices = [None if tensor is None else as_matrix(tensor, part.space.layout.rows) for tensor in of_part]
        there = [(m, along.to(m.dtype)) for m, along in zip(matrices, part.cut_axes, strict=True) if m is not None]
        if not there:
            part.coordinates.zero_()
            continue
        _multiply(there, part.coordinates)
        seen.append(Seen(part, of_part, matrices))
    return seen


def measure_used(part: Part) -> Tensor:
    """Return the squared lengths of coordinates, of the rows that are in use and of all."""
    coordinates = part.coordinates
    widest = torch.float32 if coordinates.device.type == "mps" else torch.float64
    in_use = coordinates if part.used_rows is None else coordinates * part.used_rows
    return torch.stack([torch.linalg.vector_norm(rows, dtype=widest) for rows in (in_use, coordinates)]).square_()


def free_rows(part: Part, in_use: Tensor, whole: Tensor) -> None:
    """Take no notice of rows that no past task used, unless rows in use are learnt as well, by these squared lengths.

    A loss that moves rows in use as well compares them with the others, as one softmax over old and new classes does:
    then what the others make of past inputs matters to past tasks.
    """
    if part.used_rows is not None:
        part.coordinates.mul_(part.used_rows | (in_use > SMALLEST_COMPARED**2 * whole))


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
        if matrix.data_ptr() != tensor.data_ptr():
            place = in_memory_order(tensor)
            place.copy_(matrix.view(place.shape))
