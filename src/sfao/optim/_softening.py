"""The soft projection of all layers that remember input spaces: nothing in it waits for a device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfao.gating.softness import choose_scales, choose_shares, find_factors, keep_or_remove, tabulate
from sfao.optim._coordinates import Coordinates
from sfao.optim._host_path import LARGE, SMALL, working_dtype
from sfao.optim._soft_parts import (
    SMALL_SHARE,
    SMALLEST_LENGTH,
    Part,
    Seen,
    answer,
    estimate_fresh_length,
    find_parts,
    free_rows,
    look,
    measure_used,
    remove,
)
from sfao.optim.layers import Layer

#: The options that a softening is prepared for.
PREPARED = ("keep", "tolerance", "restore")


@dataclass(frozen=True)
class Measured:
    """What is known of tensors that are about to be softened."""

    found: list[list[Tensor | None]]
    seen: list[list[Seen]]
    #: Squared lengths along each axis (layers x axes), of all there is (layers); how far answers have moved (parts).
    energies: Tensor
    squares: Tensor
    moved: Tensor


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
        self._parts = [list(find_parts(layer, device)) for layer in self.layers]
        self._measure_sizes(dtype)
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
        #: The lengths of what was softened last.
        self.lengths = torch.zeros_like(self._keep)
        self._follow_travels()

    def _measure_sizes(self, dtype: torch.dtype) -> None:
        """Measure the lengths of answers that drifts are relative to."""
        parts = [part for of_layer in self._parts for part in of_layer]
        lengths = torch.stack([torch.linalg.vector_norm(part.space.answers, dtype=dtype) for part in parts])
        for part, length in zip(parts, self.sum(lengths.square()).sqrt(), strict=True):
            part.set_size(length)

    def _follow_travels(self) -> None:
        """Take over how far the layers have come, and let them see how that goes on."""
        fresh = [sum(estimate_fresh_length(part.space.rows) ** 2 for part in parts) ** 0.5 for parts in self._parts]
        found = self.measure_lengths(Tensor.detach).tolist()
        sizes = [max(length, SMALL_SHARE * of_fresh) for length, of_fresh in zip(found, fresh, strict=True)]
        travels = [layer.travel for layer in self.layers]
        sizes = [now if travel.size is None else travel.size for now, travel in zip(sizes, travels, strict=True)]
        self._paths, self._paths_before, self._sizes = (
            self._keep.new_tensor(values)
            for values in ([float(of.path) for of in travels], [of.before for of in travels], sizes)
        )
        for number, (layer, size) in enumerate(zip(self.layers, sizes, strict=True)):
            layer.travel = replace(layer.travel, path=self._paths[number], size=size)

    def travel(self, lengths: Tensor) -> None:
        """Note that each layer has taken a step of such a length."""
        if self.layers:
            self._paths.add_(lengths / self._sizes.clamp_min(SMALLEST_LENGTH))

    def measure_lengths(self, read: Callable[[Tensor], Tensor | None]) -> Tensor:
        """Return the length of what `read` returns for the parameters of each layer."""
        found = [[read(parameter) for parameter in layer.parameters] for layer in self.layers]
        return self.sum(self._measure_squares(found)).sqrt_()

    def _hold_coordinates(self, device: torch.device) -> None:
        numbered = [(number, part) for number, parts in enumerate(self._parts) for part in parts]
        self._coordinates = Coordinates(
            [part.space.layout.rows for _, part in numbered],
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

    def sum(self, measured: Tensor) -> Tensor:
        """Return sums over all that hold these layers, which is nobody else here."""
        return measured

    def read_weights(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return what is held here of parameters."""
        return list(parameters)

    def apply(self, read: Callable[[Tensor], Tensor | None]) -> None:
        """Soften what `read` returns for each parameter, in place."""
        if self.layers:
            measured = self.measure(read)
            self.finish(measured, measured.energies, measured.squares, measured.moved)

    def measure(self, read: Callable[[Tensor], Tensor | None]) -> Measured:
        """Measure what `read` returns for each parameter."""
        found = [[read(parameter) for parameter in layer.parameters] for layer in self.layers]
        seen = [look(parts, tensors) for parts, tensors in zip(self._parts, found, strict=True)]
        self._free_rows(seen)
        energies = self._coordinates.measure_energies(self._keep.dtype)
        return Measured(found, seen, energies, self._measure_squares(found), self._measure_moves(seen))

    def finish(self, measured: Measured, energies: Tensor, squares: Tensor, moved: Tensor) -> None:
        """Soften what was measured; the tables are those of all rows."""
        inside = energies.sum(1)
        outside = (squares - inside).clamp_min_(0)
        self._note_drifts(measured.seen, moved)
        if self._is_hard:
            factors = keep_or_remove(self._importances, self._keep)
        else:
            paths = torch.maximum(self._paths, self._paths_before)
            wanted = choose_shares(self._keep, self._tasks, paths, self.drifts, self._tolerance)
            factors = find_factors(energies, outside, self._importances, wanted, self._table)
        left = outside + (energies * factors.square()).sum(1)
        total = outside + inside
        self.shares = torch.where(total > 0, (left / total).sqrt_(), 1.0)
        scales = choose_scales(self.shares, self._restore)
        self.lengths = left.sqrt_().mul_(scales)
        self._coordinates.scale((1 - factors).mul_(scales[:, None]))
        self._remove(measured.found, measured.seen, _Rows(scales))

    def _free_rows(self, seen: list[list[Seen]]) -> None:
        """Take no notice of rows that no past task used, while they alone are learnt."""
        partly = [one.part for of_layer in seen for one in of_layer if one.part.used_rows is not None]
        if partly:
            measured = self.sum(torch.stack([measure_used(part) for part in partly]))
            for part, (in_use, whole) in zip(partly, measured, strict=True):
                free_rows(part, in_use, whole)

    def _remove(self, found: list[list[Tensor | None]], seen: list[list[Seen]], scales: "_Rows") -> None:
        """Take what the coordinates say from all tensors, and scale what is left."""
        for number, tensors in enumerate(found):
            for one in seen[number]:
                remove(one, scales.read(number, one.part.coordinates.dtype))
            for index in self._others[number]:
                tensor = tensors[index]
                if tensor is not None:
                    tensor.mul_(scales.read(number, tensor.dtype))

    def outcomes(self) -> Iterator[tuple[Layer, float, float]]:
        """Yield each layer with the share it kept and its drift; waits for a device."""
        if self.layers:
            yield from zip(self.layers, self.shares.tolist(), self.drifts.tolist(), strict=True)

    def _measure_squares(self, found: list[list[Tensor | None]]) -> Tensor:
        """Return the squared length of each layer's tensors."""
        nothing, dtype = self._keep.new_zeros(()), self._keep.dtype
        present = [tensor for tensors in found for tensor in tensors if tensor is not None]
        if nothing.device.type == "cpu":
            measured = iter([_measure_length(tensor, dtype) for tensor in present])
        else:  # in few launches
            measured = iter(torch._foreach_norm(present, 2, dtype=dtype) if present else ())
        lengths = [[nothing if tensor is None else next(measured) for tensor in tensors] for tensors in found]
        return _tabulate(lengths, nothing).square_().sum(1)

    def _measure_moves(self, seen: list[list[Seen]]) -> Tensor:
        """Return how far the answers of each part of which something was seen have moved."""
        parts = [(layer, one.part) for layer, of_layer in zip(self.layers, seen, strict=True) for one in of_layer]
        if not parts:
            return self._keep.new_zeros(0)
        weights = iter(self.read_weights([p for layer, part in parts for p in layer.parameters[part.parameters]]))
        moved = [answer(part, [next(weights) for _ in layer.parameters[part.parameters]]) for layer, part in parts]
        torch._foreach_sub_(moved, [part.space.answers for _, part in parts])
        return torch.stack(torch._foreach_norm(moved, 2, dtype=self._keep.dtype))

    def _note_drifts(self, seen: list[list[Seen]], moved: Tensor) -> None:
        """Note the drift of each layer of which something was seen: that of the part that has drifted furthest."""
        if not len(moved):
            return
        sizes = torch.stack([one.part.size for of_layer in seen for one in of_layer])
        measured = iter((moved / sizes).unbind())
        drifts = [[next(measured) for _ in of_layer] or [self.drifts[number]] for number, of_layer in enumerate(seen)]
        self.drifts.copy_(_tabulate(drifts, self._keep.new_zeros(())).amax(1))


def soften_updates(softening: Softening, before: dict[Tensor, Tensor]) -> None:
    """Soften what was added to parameters since they were as they were before, in place."""
    updates = {parameter: parameter - old for parameter, old in before.items()}
    for parameter, old in before.items():
        parameter.copy_(old)
    softening.apply(updates.get)
    for parameter, update in updates.items():
        parameter.add_(update)


class _Rows:
    """The rows of a table, in whichever dtype they are asked for."""

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self._rows: dict[torch.dtype, tuple[Tensor, ...]] = {}

    def read(self, number: int, dtype: torch.dtype) -> Tensor:
        if dtype not in self._rows:
            self._rows[dtype] = self._table.to(dtype).unbind(0)
        return self._rows[dtype][number]


def _find_others(layer: Layer, parts: Sequence[Part]) -> list[int]:
    numbers = range(len(layer.parameters))
    covered = {number for part in parts for number in numbers[part.parameters]}
    return [number for number in numbers if number not in covered]


def _tabulate(rows: Sequence[Sequence[Tensor]], padding: Tensor) -> Tensor:
    """Return scalars as a table, shorter rows filled up."""
    longest = max(map(len, rows))
    padded = [scalar for row in rows for scalar in (*row, *[padding] * (longest - len(row)))]
    return torch.stack(padded).view(len(rows), longest)


def _measure_length(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the length of a tensor; of a large one on a CPU by rows, as torch would copy it to widen it."""
    is_plain = tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous()
    if is_plain and tensor.ndim > 1 and tensor.numel():
        rows = torch.linalg.vector_norm(tensor.view(len(tensor), -1), dim=1)
        length: Tensor = torch.linalg.vector_norm(rows, dtype=dtype)
        # Beyond, squares leave the range of float32.
        if SMALL < float(length) < LARGE:
            return length
    whole: Tensor = torch.linalg.vector_norm(tensor, dtype=dtype)
    return whole
