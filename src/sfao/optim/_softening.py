"""The soft projection of all layers that remember input spaces: nothing in it waits for a device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfao.gating.decision import ACCEPTED, ZERO
from sfao.gating.softness import ALL, NOTHING, choose_scales, choose_shares, find_factors, keep_or_remove
from sfao.gating.subspace import Subspace, measure_drift
from sfao.optim._host_path import as_matrix, count_channels_last, in_memory_order
from sfao.optim.layers import Layer

#: The options that a softening is prepared for.
PREPARED = ("keep", "tolerance", "restore")


@dataclass(frozen=True)
class _Part:
    """A matrix of a layer with an input space: its parameters by number, and the place of its axes in the tables."""

    space: Subspace
    parameters: slice
    axes: slice


@dataclass(frozen=True)
class _Seen:
    """The tensors of a part, as matrices, and their coordinates along the axes."""

    part: _Part
    tensors: list[Tensor | None]
    matrices: list[Tensor | None]
    coordinates: Tensor


class Softening:
    """Takes from the gradients, or other tensors, of some layers what lies along the axes they remember.

    Made anew whenever spaces or options change. After `apply`, `shares` says how much of each gradient's length was
    left before it was given its length back, and `drifts` how far each layer has moved since it was last consolidated.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._all_layers = layers
        self._made_for = self._describe()
        self.layers = [layer for layer in layers if layer.remembers_inputs]
        if not self.layers:
            return
        device = self.layers[0].parameters[0].device
        dtype = torch.float32 if device.type == "mps" else torch.float64
        options = [layer.options for layer in self.layers]
        self._keep, self._tolerance, self._restore = (
            torch.tensor([float(of_layer[name]) for of_layer in options], dtype=dtype, device=device)
            for name in PREPARED
        )
        self._parts = [list(_find_parts(layer, device)) for layer in self.layers]
        tasks = [max(part.space.tasks for part in parts) for parts in self._parts]
        self._tasks = torch.tensor(tasks, dtype=dtype, device=device)
        widest = max(part.axes.stop for parts in self._parts for part in parts)
        self._importances = torch.zeros(len(self.layers), widest, dtype=dtype, device=device)
        for number, parts in enumerate(self._parts):
            for part in parts:
                self._importances[number, part.axes] = part.space.importances.to(dtype)
        #: True if gradients are kept or projected whole: there is nothing to look for.
        self._is_hard = all(of_layer["keep"] in (0, 1) for of_layer in options)
        self._energies = torch.zeros_like(self._importances)
        self._squares, self.drifts = torch.zeros_like(self._keep), torch.zeros_like(self._keep)
        self.shares = torch.ones_like(self._keep)

    def serves(self) -> bool:
        """Tell whether spaces and options are those this was made for."""
        return self._made_for == self._describe()

    def _describe(self) -> list[object]:
        return [
            (layer.space_version, layer.parameters[0].device, *(layer.options[name] for name in PREPARED))
            for layer in self._all_layers
            if layer.parameters
        ]

    def apply(self, read: Callable[[Tensor], Tensor | None]) -> None:
        """Soften what `read` returns for each parameter, in place."""
        if not self.layers:
            return
        found = [[read(parameter) for parameter in layer.parameters] for layer in self.layers]
        seen = [self._look(number, tensors) for number, tensors in enumerate(found)]
        outside = (self._squares - self._energies.sum(1)).clamp_min(0)
        if self._is_hard:
            factors = keep_or_remove(self._importances, self._keep)
        else:
            wanted = choose_shares(self._keep, self._tasks, self.drifts, self._tolerance)
            factors = find_factors(self._energies, outside, self._importances, wanted)
        left = outside + (self._energies * factors.square()).sum(1)
        total = outside + self._energies.sum(1)
        self.shares = torch.where(total > 0, (left / total).sqrt(), torch.ones_like(total))
        scales = choose_scales(self.shares, self._restore)
        removed = (1 - factors) * scales[:, None]
        for number, tensors in enumerate(found):
            for one in seen[number]:
                _remove_(one, removed[number, one.part.axes], scales[number])
            covered = {index for one in seen[number] for index in range(len(tensors))[one.part.parameters]}
            for index, tensor in enumerate(tensors):
                if tensor is not None and index not in covered:
                    tensor.mul_(scales[number].to(tensor.dtype))

    def outcomes(self) -> Iterator[tuple[Layer, float, float]]:
        """Yield each layer with the share it kept and its drift; waits for a device."""
        if self.layers:
            yield from zip(self.layers, self.shares.tolist(), self.drifts.tolist(), strict=True)

    def _look(self, number: int, tensors: list[Tensor | None]) -> list[_Seen]:
        """Measure the lengths of a layer's tensors along its axes and in all, and its drift."""
        dtype = self._squares.dtype
        lengths = [torch.linalg.vector_norm(tensor, dtype=dtype) for tensor in tensors if tensor is not None]
        self._squares[number] = torch.stack(lengths).square().sum() if lengths else 0.0
        seen, drifts = [], []
        for part in self._parts[number]:
            one = _look_at_part(part, tensors[part.parameters])
            if one is None:
                self._energies[number, part.axes] = 0.0
                continue
            self._energies[number, part.axes] = one.coordinates.to(dtype).square().sum(0)
            drifts.append(_measure_drift(part.space, self.layers[number].parameters[part.parameters]))
            seen.append(one)
        if drifts:
            self.drifts[number] = torch.stack(drifts).max()
        return seen


class SoftenedCounts:
    """Counts, on the device, gradients that directions accepted, or saw as zero, and softening did not leave whole."""

    def __init__(self, codes: Tensor) -> None:
        #: By layer: projected, and discarded because nothing was left, accepted ones and those that were seen as zero.
        self._counts = torch.zeros(len(codes), 3, dtype=torch.int64, device=codes.device)
        self._places: tuple[int, Tensor, Tensor] | None = None

    def count(self, layers: Sequence[Layer], softening: Softening, codes: Tensor, sound: Tensor) -> None:
        if self._places is None or self._places[0] != id(softening):
            # Sent once: a graph that is captured later must not wait for the host.
            pairs = [(number, layers.index(layer)) for number, layer in enumerate(softening.layers) if layer in layers]
            table = torch.tensor(pairs, dtype=torch.int64, device=codes.device).reshape(-1, 2)
            self._places = id(softening), table[:, 0].contiguous(), table[:, 1].contiguous()
        _, chosen, numbers = self._places
        shares = softening.shares[chosen]
        is_gone = shares <= NOTHING
        is_softened = (shares <= ALL) & (codes[numbers] == ACCEPTED) & sound
        is_emptied = is_gone & (codes[numbers] == ZERO) & sound
        outcome = torch.stack([is_softened & ~is_gone, is_softened & is_gone, is_emptied], 1)
        self._counts.index_add_(0, numbers, outcome.to(self._counts.dtype))

    def hand_over(self, layers: Sequence[Layer]) -> None:
        for layer, (projected, discarded, emptied) in zip(layers, self._counts.tolist(), strict=True):
            layer.counts["accept"] -= projected + discarded
            layer.counts["zero"] -= emptied
            layer.counts["project"] += projected
            layer.counts["discard"] += discarded + emptied
        self._counts.zero_()


def _find_parts(layer: Layer, device: torch.device) -> Iterator[_Part]:
    first, start = 0, 0
    for space in layer.spaces:
        parameters = slice(first, first + len(space.layout.columns))
        first = parameters.stop
        if not space.is_empty:
            space.to(device)
            yield _Part(space, parameters, slice(start, start + len(space.axes)))
            start += len(space.axes)


def _look_at_part(part: _Part, tensors: list[Tensor | None]) -> _Seen | None:
    space = part.space
    orders = [
        held if tensor is None else count_channels_last(tensor)
        for tensor, held in zip(tensors, space.channels_last, strict=True)
    ]
    space.arrange(orders)
    matrices = [None if tensor is None else as_matrix(tensor, space.layout.rows) for tensor in tensors]
    axes = space.axes.split(space.layout.columns, 1)
    products = [m @ along.to(m.dtype).T for m, along in zip(matrices, axes, strict=True) if m is not None]
    if not products:
        return None
    coordinates = products[0]
    for product in products[1:]:
        coordinates += product
    return _Seen(part, tensors, matrices, coordinates)


def _measure_drift(space: Subspace, parameters: Sequence[Tensor]) -> Tensor:
    weights = [
        as_matrix(parameter.detach().movedim(1, -1) if channels else parameter.detach(), space.layout.rows)
        for parameter, channels in zip(parameters, space.channels_last, strict=True)
    ]
    return measure_drift(space.answer([weight.float() for weight in weights]), space.answers)


def _remove_(seen: _Seen, removed: Tensor, scale: Tensor) -> None:
    """Take these shares of the coordinates from the tensors, and scale what is left."""
    space = seen.part.space
    weighted = seen.coordinates * removed.to(seen.coordinates.dtype)
    axes = space.axes.split(space.layout.columns, 1)
    for tensor, matrix, along in zip(seen.tensors, seen.matrices, axes, strict=True):
        if tensor is None or matrix is None:
            continue
        matrix.mul_(scale.to(matrix.dtype)).addmm_(weighted, along.to(matrix.dtype), alpha=-1)
        if matrix.data_ptr() != tensor.data_ptr():
            place = in_memory_order(tensor)
            place.copy_(matrix.view(place.shape))
