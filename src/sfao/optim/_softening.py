"""The soft projection of all layers that remember input spaces: nothing in it waits for a device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfao.gating.softness import choose_scales, choose_shares, find_factors, keep_or_remove, tabulate
from sfao.gating.subspace import Subspace
from sfao.optim._coordinates import Coordinates
from sfao.optim._host_path import LARGE, SMALL, as_matrix, count_channels_last, in_memory_order, working_dtype
from sfao.optim.layers import Layer

#: The options that a softening is prepared for.
PREPARED = ("keep", "tolerance", "restore")
#: The least length of answers that a drift is measured by.
SMALLEST_ANSWERS = torch.finfo(torch.float32).tiny ** 0.5


class _Part:
    """A matrix of a layer with an input space: its parameters by number, and the place of its axes in the tables."""

    def __init__(self, space: Subspace, parameters: slice, axes: slice, dtype: torch.dtype) -> None:
        self.space, self.parameters, self.axes = space, parameters, axes
        #: The length of the answers that a drift is relative to.
        self.size: Tensor = torch.linalg.vector_norm(space.answers, dtype=dtype).clamp_min(SMALLEST_ANSWERS)
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
class _Seen:
    """The tensors of a part, and as matrices."""

    part: _Part
    tensors: list[Tensor | None]
    matrices: list[Tensor | None]


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
        self._parts = [list(_find_parts(layer, device, dtype)) for layer in self.layers]
        tasks = [max(part.space.tasks for part in parts) for parts in self._parts]
        self._tasks = torch.tensor(tasks, dtype=dtype, device=device)
        widest = max(part.axes.stop for parts in self._parts for part in parts)
        self._importances = torch.zeros(len(self.layers), widest, dtype=dtype, device=device)
        for number, parts in enumerate(self._parts):
            for part in parts:
                self._importances[number, part.axes] = part.space.importances.to(dtype)
        #: True if gradients are kept or projected whole: there is nothing to look for.
        self._is_hard = all(of_layer["keep"] in (0, 1) for of_layer in options)
        self._table = tabulate(self._importances)
        self._hold_coordinates(device)
        #: By layer, the numbers of the parameters that have no axes.
        self._others = [_find_others(layer, parts) for layer, parts in zip(self.layers, self._parts, strict=True)]
        self.drifts = torch.zeros_like(self._keep)
        self.shares = torch.ones_like(self._keep)

    def _hold_coordinates(self, device: torch.device) -> None:
        numbered = [(number, part) for number, parts in enumerate(self._parts) for part in parts]
        self._coordinates = Coordinates(
            [part.space.layout.rows if part.rows is None else len(part.rows) for _, part in numbered],
            [(number, part.axes) for number, part in numbered],
            (self._importances.shape[0], self._importances.shape[1]),
            [working_dtype(self.layers[number].parameters[part.parameters][0]) for number, part in numbered],
            device,
        )
        for (_, part), held in zip(numbered, self._coordinates.of_part, strict=True):
            part.coordinates = held

    def serves(self) -> bool:
        """Tell whether spaces and options are those this was made for."""
        return self._made_for == self._describe()

    def _describe(self) -> list[object]:
        return [
            (
                layer.space_version,
                layer.parameters[0].device,
                layer.parameters[0].dtype,
                *(layer.options[name] for name in PREPARED),
            )
            for layer in self._all_layers
            if layer.parameters
        ]

    def apply(self, read: Callable[[Tensor], Tensor | None]) -> None:
        """Soften what `read` returns for each parameter, in place."""
        if not self.layers:
            return
        found = [[read(parameter) for parameter in layer.parameters] for layer in self.layers]
        seen = [_look(parts, tensors) for parts, tensors in zip(self._parts, found, strict=True)]
        energies = self._coordinates.measure_energies(self._keep.dtype)
        inside = energies.sum(1)
        outside = (self._measure_squares(found, seen) - inside).clamp_min_(0)
        self._measure_drifts(seen)
        if self._is_hard:
            factors = keep_or_remove(self._importances, self._keep)
        else:
            wanted = choose_shares(self._keep, self._tasks, self.drifts, self._tolerance)
            factors = find_factors(energies, outside, self._importances, wanted, self._table)
        left = outside + (energies * factors.square()).sum(1)
        total = outside + inside
        self.shares = torch.where(total > 0, (left / total).sqrt_(), 1.0)
        scales = choose_scales(self.shares, self._restore)
        self._coordinates.scale((1 - factors).mul_(scales[:, None]))
        self._remove(found, seen, _Rows(scales))

    def _remove(self, found: list[list[Tensor | None]], seen: list[list[_Seen]], scales: "_Rows") -> None:
        """Take what the coordinates say from all tensors, and scale what is left."""
        for number, tensors in enumerate(found):
            for one in seen[number]:
                _remove_(one, scales.read(number, one.part.coordinates.dtype))
            for index in self._others[number]:
                tensor = tensors[index]
                if tensor is not None:
                    tensor.mul_(scales.read(number, tensor.dtype))

    def outcomes(self) -> Iterator[tuple[Layer, float, float]]:
        """Yield each layer with the share it kept and its drift; waits for a device."""
        if self.layers:
            yield from zip(self.layers, self.shares.tolist(), self.drifts.tolist(), strict=True)

    def _measure_squares(self, found: list[list[Tensor | None]], seen: list[list[_Seen]]) -> Tensor:
        """Return the squared length of each layer's tensors, without rows that are free."""
        found = [_leave_free_rows_out(tensors, of_layer) for tensors, of_layer in zip(found, seen, strict=True)]
        nothing, dtype = self._keep.new_zeros(()), self._keep.dtype
        present = [tensor for tensors in found for tensor in tensors if tensor is not None]
        if nothing.device.type == "cpu":
            measured = iter([_measure_length(tensor, dtype) for tensor in present])
        else:  # in few launches
            measured = iter(torch._foreach_norm(present, 2, dtype=dtype) if present else ())
        lengths = [[nothing if tensor is None else next(measured) for tensor in tensors] for tensors in found]
        return _tabulate(lengths, nothing).square_().sum(1)

    def _measure_drifts(self, seen: list[list[_Seen]]) -> None:
        """Measure the drift of each layer of which something was seen: that of the part that has drifted furthest."""
        nothing = self._keep.new_zeros(())
        parts = [(layer, one.part) for layer, of_layer in zip(self.layers, seen, strict=True) for one in of_layer]
        if not parts:
            return
        moved = [_answer(part, layer.parameters[part.parameters]) for layer, part in parts]
        torch._foreach_sub_(moved, [part.space.answers for _, part in parts])
        lengths = torch.stack(torch._foreach_norm(moved, 2, dtype=nothing.dtype))
        measured = iter((lengths / torch.stack([part.size for _, part in parts])).unbind())
        drifts = [[next(measured) for _ in of_layer] or [self.drifts[number]] for number, of_layer in enumerate(seen)]
        self.drifts.copy_(_tabulate(drifts, nothing).amax(1))


class _Rows:
    """The rows of a table, in whichever dtype they are asked for."""

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self._rows: dict[torch.dtype, tuple[Tensor, ...]] = {}

    def read(self, number: int, dtype: torch.dtype) -> Tensor:
        if dtype not in self._rows:
            self._rows[dtype] = self._table.to(dtype).unbind(0)
        return self._rows[dtype][number]


def _find_parts(layer: Layer, device: torch.device, dtype: torch.dtype) -> Iterator[_Part]:
    first, start = 0, 0
    for space in layer.spaces:
        parameters = slice(first, first + len(space.layout.columns))
        first = parameters.stop
        if not space.is_empty:
            space.to(device)
            yield _Part(space, parameters, slice(start, start + len(space.axes)), dtype)
            start += len(space.axes)


def _find_others(layer: Layer, parts: Sequence[_Part]) -> list[int]:
    numbers = range(len(layer.parameters))
    covered = {number for part in parts for number in numbers[part.parameters]}
    return [number for number in numbers if number not in covered]


def _leave_free_rows_out(tensors: list[Tensor | None], seen: Sequence[_Seen]) -> list[Tensor | None]:
    kept = list(tensors)
    for one in seen:
        if one.part.rows is not None:
            kept[one.part.parameters] = one.matrices
    return kept


def _tabulate(rows: Sequence[Sequence[Tensor]], padding: Tensor) -> Tensor:
    """Return scalars as a table, shorter rows filled up."""
    longest = max(map(len, rows))
    padded = [scalar for row in rows for scalar in (*row, *[padding] * (longest - len(row)))]
    return torch.stack(padded).view(len(rows), longest)


def _measure_length(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the length of a tensor; of a large one on a CPU by rows, as torch would copy it to widen it."""
    if tensor.device.type == "cpu" and tensor.ndim > 1 and tensor.dtype == torch.float32 and tensor.is_contiguous():
        rows = torch.linalg.vector_norm(tensor.view(len(tensor), -1), dim=1)
        length: Tensor = torch.linalg.vector_norm(rows, dtype=dtype)
        # Beyond, squares leave the range of float32.
        if SMALL < float(length) < LARGE:
            return length
    whole: Tensor = torch.linalg.vector_norm(tensor, dtype=dtype)
    return whole


def _look(parts: Sequence[_Part], tensors: list[Tensor | None]) -> list[_Seen]:
    """Measure the coordinates of a layer's tensors along its axes; return what there is to see."""
    seen = []
    for part in parts:
        of_part = tensors[part.parameters]
        part.arrange(of_part)
        matrices = [None if tensor is None else as_matrix(tensor, part.space.layout.rows) for tensor in of_part]
        if part.rows is not None:
            matrices = [None if matrix is None else matrix[part.rows] for matrix in matrices]
        there = [(m, along.to(m.dtype)) for m, along in zip(matrices, part.cut_axes, strict=True) if m is not None]
        if there:
            _multiply(there, part.coordinates)
            seen.append(_Seen(part, of_part, matrices))
        else:
            part.coordinates.zero_()
    return seen


def _multiply(pairs: Sequence[tuple[Tensor, Tensor]], out: Tensor) -> None:
    """Write the sum of A B' over pairs (A, B) of matrices."""
    (first, second), *others = pairs
    torch.mm(first, second.T, out=out)
    for first, second in others:
        out.addmm_(first, second.T)


def _answer(part: _Part, parameters: Sequence[Tensor]) -> Tensor:
    """Return what the layer answers to the probes now."""
    space = part.space
    weights = [
        as_matrix(parameter.movedim(1, -1) if channels else parameter, space.layout.rows).float()
        for parameter, channels in zip(parameters, space.channels_last, strict=True)
    ]
    return space.answer(weights)


def _remove_(seen: _Seen, scale: Tensor) -> None:
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
