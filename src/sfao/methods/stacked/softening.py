"""The soft projection of many runs at once: the tables of :mod:`sfao.optim._softening` with one more dimension."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import hypot

import torch
from torch import Tensor

from sfao.gating.softness import choose_scales, choose_shares, find_factors, tabulate
from sfao.methods.stacked.models import Tensors, widen
from sfao.methods.stacked.stacked_part import StackedPart, stack_part
from sfao.optim._soft_parts import SMALL_SHARE, SMALLEST_LENGTH, Part, estimate_fresh_length, find_parts
from sfao.optim.layers import Layer


class StackedSoftening:
    """The soft projection of layers that remember input spaces; made anew whenever these change.

    After `apply`, `shares`, `drifts` and `lengths` (runs x layers) say what those of a Softening say of one run.

    Args:
        layers: of each run, those that remember: the same layers in all runs.
        names: of each run, the names of its parameters.
        dtype: of the tables.
    """

    def __init__(
        self, layers: Sequence[Sequence[Layer]], names: Sequence[dict[Tensor, str]], dtype: torch.dtype
    ) -> None:
        device = layers[0][0].parameters[0].device

        def gather(read: Callable[[Layer], float]) -> Tensor:
            return torch.tensor([[read(layer) for layer in own] for own in layers], dtype=dtype, device=device)

        self.layers = layers
        self._names = [[names[0][parameter] for parameter in layer.parameters] for layer in layers[0]]
        found = [[list(find_parts(layer, device)) for layer in own] for own in layers]
        for part in (part for own in found for parts in own for part in parts):
            part.set_size(torch.linalg.vector_norm(part.space.answers, dtype=dtype))
        self._parts = [part for number, of in enumerate(self._names) for part in _stack_layer(number, of, found)]
        covered = {name for part in self._parts for name in part.names}
        self._others = [[name for name in of_layer if name not in covered] for of_layer in self._names]
        self._importances = self._tabulate([part.importances.to(dtype) for part in self._parts]).flatten(0, 1)
        self._table = tabulate(self._importances)
        self.keep = gather(lambda layer: float(layer.options["keep"]))
        self._tolerance = gather(lambda layer: float(layer.options["tolerance"]))
        self._restore = gather(lambda layer: float(layer.options["restore"]))
        tasks = [[max(part.space.tasks for part in parts) for parts in own] for own in found]
        self._tasks = torch.tensor(tasks, dtype=dtype, device=device)
        self._paths = gather(lambda layer: float(layer.travel.path))
        self._paths_before = gather(lambda layer: layer.travel.before)
        self._sizes = gather(_measure_size)
        self.shares = torch.ones_like(self.keep)
        self.drifts = torch.zeros_like(self.keep)
        self.lengths = torch.zeros_like(self.keep)

    def _tabulate(self, by_part: Sequence[Tensor]) -> Tensor:
        """Return values of the axes of each part (runs x axes) as a table of (runs x layers x axes)."""
        runs, widest = len(self.layers), max(part.place.stop for part in self._parts)
        table = by_part[0].new_zeros(runs, len(self._names), widest)
        for part, values in zip(self._parts, by_part, strict=True):
            table[:, part.layer, part.place] = values
        return table

    def measure_squares(self, tensors: Tensors) -> Tensor:
        """Return the squared lengths of each layer's tensors, (runs x layers)."""
        return measure_squares(tensors, self._names, self.keep.dtype)

    def apply(self, gradients: Tensors, squares: Tensor, parameters: Tensors) -> None:
        """Soften the gradients, whose squared lengths are known, in place."""
        shape, dtype = self.keep.shape, self.keep.dtype
        coordinates = [part.measure_coordinates(gradients) for part in self._parts]
        lengths = [torch.linalg.vector_norm(found, dim=1, dtype=dtype) for found in coordinates]
        energies = self._tabulate(lengths).square_().flatten(0, 1)
        inside = energies.sum(1)
        outside = (squares.flatten() - inside).clamp_min_(0)
        self._measure_drifts(parameters)
        paths = torch.maximum(self._paths, self._paths_before)
        wanted = choose_shares(self.keep, self._tasks, paths, self.drifts, self._tolerance)
        factors = find_factors(energies, outside, self._importances, wanted.flatten(), self._table)
        left, total = outside + (energies * factors.square()).sum(1), outside + inside
        self.shares = torch.where(total > 0, (left / total).sqrt_(), 1.0).view(shape)
        scales = choose_scales(self.shares, self._restore)
        self.lengths = left.sqrt_().view(shape) * scales
        taken = (1 - factors).view(*shape, -1) * scales[:, :, None]
        self._remove(gradients, coordinates, taken, scales)

    def _remove(self, gradients: Tensors, coordinates: Sequence[Tensor], taken: Tensor, scales: Tensor) -> None:
        for part, found in zip(self._parts, coordinates, strict=True):
            found.mul_(taken[:, part.layer, None, part.place].to(found.dtype))
            part.remove(gradients, found, scales[:, part.layer, None, None].to(found.dtype))
        for number, others in enumerate(self._others):
            for name in others:
                gradients[name].mul_(widen(scales[:, number], gradients[name]))

    def _measure_drifts(self, parameters: Tensors) -> None:
        """Measure the drift of each layer: that of the part that has drifted furthest."""
        found: list[list[Tensor]] = [[] for _ in self._names]
        for part in self._parts:
            found[part.layer].append(part.measure_drift(parameters))
        self.drifts = torch.stack([torch.stack(of_layer).amax(0) for of_layer in found], 1)

    def travel(self, lengths: Tensor) -> None:
        """Note that each layer of each run has taken a step of such a length."""
        self._paths.add_(lengths / self._sizes.clamp_min(SMALLEST_LENGTH))

    def hand_over(self) -> None:
        """Let the layers know how far they have come."""
        for own, paths, sizes in zip(self.layers, self._paths.tolist(), self._sizes.tolist(), strict=True):
            for layer, path, size in zip(own, paths, sizes, strict=True):
                held = torch.tensor(path, dtype=self._paths.dtype, device=self._paths.device)
                layer.travel = replace(layer.travel, path=held, size=size)


def measure_squares(tensors: Tensors, names: Sequence[Sequence[str]], dtype: torch.dtype) -> Tensor:
    """Return the squared lengths (runs x layers) of tensors by name, of which each layer has some."""
    lengths = {
        name: torch.linalg.vector_norm(tensors[name], dim=tuple(range(1, tensors[name].ndim)), dtype=dtype)
        for of_layer in names
        for name in of_layer
    }
    return torch.stack([torch.stack([lengths[name] for name in of_layer]).square().sum(0) for of_layer in names], 1)


def _stack_layer(number: int, names: Sequence[str], found: Sequence[Sequence[Sequence[Part]]]) -> list[StackedPart]:
    """Return the parts of one layer, each of all runs, their axes one after the other."""
    stacked: list[StackedPart] = []
    for parts in zip(*(own[number] for own in found), strict=True):
        start = stacked[-1].place.stop if stacked else 0
        stacked.append(stack_part(number, names, parts, start))
    return stacked


def _measure_size(layer: Layer) -> float:
    """Return the length that the path of a layer is relative to: its own when it set out, or that of a fresh one."""
    if layer.travel.size is not None:
        return layer.travel.size
    lengths = [torch.linalg.vector_norm(parameter.detach(), dtype=torch.float64) for parameter in layer.parameters]
    fresh = hypot(*(estimate_fresh_length(space.rows) for space in layer.spaces if not space.is_empty))
    return max(float(torch.stack(lengths).norm()), SMALL_SHARE * fresh)
