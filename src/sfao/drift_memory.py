"""The memory of :class:`sfao.DriftBound`: second moments of each layer's past inputs, and its weights at that time.

A layer is a stack of matrices W (groups x rows x width) that act on inputs x.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from sfao.bounded_layers import BoundedLayer, working_dtype
from sfao.capture import Inputs

#: Matrices up to this width keep all their axes, wider ones at most so many.
NARROW, MOST_AXES = 16, 1024
#: A layer's outputs count as at least this share of those of an initialized layer. One of zeros could never move.
SMALLEST_OUTPUT = 0.1


@dataclass(frozen=True)
class Moments:
    """Second moments A = sum_j a_j v_j v_j' + a_0 (I - V V'), summed over tasks."""

    #: V, (groups x width x axes), orthonormal columns
    axes: Tensor
    #: a_j, (groups x axes), largest first
    values: Tensor
    #: a_0, (groups): one value for all other directions
    tail: Tensor

    @property
    def trace(self) -> Tensor:
        """The mean of |x|^2 in each group, summed over tasks."""
        return self.values.sum(1) + (self.axes.shape[1] - self.axes.shape[2]) * self.tail

    @property
    def spectrum(self) -> Tensor:
        """All values a_j of all groups, then all a_0, as one vector."""
        return torch.cat([self.values.flatten(), self.tail])

    @property
    def rows(self) -> Tensor:
        """Rows R (groups x axes x width) with A = R'R + a_0 I."""
        lengths = (self.values - self.tail[:, None]).clamp_min(0).sqrt()
        return lengths.to(self.axes.dtype)[:, :, None] * self.axes.mT


def find_moments(rows: Tensor, tail: Tensor, share: float) -> Moments:
    """Return the moments R'R + a_0 I, with axes for a share of the trace beyond the largest.

    Args:
        rows: R, (groups x rows x width), scaled so that R'R is a second moment.
        tail: a_0, (groups).
        share: of the trace beyond the largest axis that the others hold.
    """
    _, count, width = rows.shape
    # The Gram matrix of the rows has the same eigenvalues, and is smaller where there are few rows.
    is_narrow = width <= count
    values, vectors = torch.linalg.eigh(rows.mT @ rows if is_narrow else rows @ rows.mT)
    values, vectors = values.double().clamp_min(0).flip(1), vectors.flip(2)
    kept = values.shape[1]
    if width > NARROW:  # the largest axis, nearly the mean of inputs that are never negative, would hide the others
        held, trace = (values + tail[:, None]).cumsum(1), values.sum(1, keepdim=True) + width * tail[:, None]
        is_short = held - held[:, :1] < share * (trace - held[:, :1])
        kept = min(kept, int(is_short.sum(1).max()) + 1, MOST_AXES)
    axes = vectors[:, :, :kept]
    if not is_narrow:
        shortest = 1e-12 * values[:, :1].clamp_min(1e-50)  # not zero in float32
        axes = rows.mT @ axes / values[:, None, :kept].clamp_min(shortest[:, None]).sqrt().to(rows.dtype)
    rest = values[:, kept:].sum(1) / max(1, width - kept)
    return Moments(axes.contiguous(), values[:, :kept] + tail[:, None], rest + tail)


def row_energies(weights: Tensor, rows: Tensor) -> Tensor:
    """Return E |W_i x|^2 for every row of W, (groups x rows), from input rows scaled as in :func:`find_moments`."""
    return (rows.to(weights.dtype) @ weights.mT).double().square().sum(1)


def past_energies(weights: Tensor, moments: Moments) -> Tensor:
    """Return E |W_i x|^2 for every row of W, (groups x rows), from the moments of the inputs."""
    along = (weights @ moments.axes.to(weights.dtype)).double().square()
    outside = weights.double().square().sum(2) - along.sum(2)
    return (along * moments.values[:, None, :]).sum(2) + outside.clamp_min(0) * moments.tail[:, None]


def join_calls(weights: Tensor, calls: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the input rows of all calls of a layer, and the energies of its outputs.

    The rows of several calls are weighted so that a bound on their sum bounds the relative drift of each.
    """
    energies = [row_energies(weights, rows) for rows in calls]
    if len(calls) == 1:
        return calls[0], energies[0]
    totals = torch.stack([energy.sum() for energy in energies])
    scales = totals.mean() / totals.where(totals > 0, totals.mean()).clamp_min(1e-300)
    rows = [rows * scale.sqrt().to(rows) for rows, scale in zip(calls, scales, strict=True)]
    return torch.cat(rows, 1), (torch.stack(energies) * scales[:, None, None]).mean(0)


@dataclass(frozen=True)
class LayerMemory:
    """The memory of one layer. Under sharding every rank holds the whole of it."""

    #: W*: the parameters at the last consolidation, (groups x rows x width)
    anchor: Tensor
    moments: Moments
    #: E |W* x|^2 of every row, (groups x rows), summed over tasks
    energy: Tensor
    #: (groups x rows): rows that some past loss depends on
    used: Tensor
    #: the number of tasks that used the layer
    tasks: int
    #: the number of consolidations of the last task
    consolidations: int = 1

    @property
    def bytes(self) -> int:
        return sum(value.nbytes for value in self.state_dict().values() if isinstance(value, Tensor))

    def allowance(self, tolerance: float, rows: Tensor) -> Tensor:
        """Return the allowed drift, above 0, of these rows, a mask (groups x rows)."""
        initialized = (rows.sum(1) * self.moments.trace).sum() / (3 * self.moments.axes.shape[1])
        energy = (self.energy * rows).sum().maximum(SMALLEST_OUTPUT**2 * initialized)
        return (tolerance**2 / self.tasks * energy).clamp_min(1e-300)

    def state_dict(self) -> dict[str, Any]:
        """Return the memory as one flat dict of tensors and numbers."""
        return {name: value for name, value in vars(self).items() if name != "moments"} | vars(self.moments)

    def to(self, device: torch.device) -> Self:
        """Return the memory on a device."""
        return self.read(self.state_dict(), device)

    @classmethod
    def read(cls, state: Mapping[str, Any], device: torch.device) -> Self:
        """Return the memory of a state on a device."""
        own: dict[str, Any] = {
            name: value.to(device) if isinstance(value, Tensor) else value for name, value in state.items()
        }
        moments = Moments(own.pop("axes"), own.pop("values"), own.pop("tail"))
        return cls(moments=moments, **own)


def read_memory(states: Mapping[str, Any], layers: Mapping[str, BoundedLayer]) -> dict[str, LayerMemory]:
    """Return the memory of these layers; raise a RuntimeError if it belongs to another model."""
    memory = {}
    for name, state in states.items():
        if name not in layers:
            raise RuntimeError(f"`state_dict` must belong to this model, but the model has no layer {name!r} to bound")
        layer, got = layers[name], tuple(state["anchor"].shape)
        if got != layer.shape:
            raise RuntimeError(
                f"`state_dict` must have groups, rows and inputs {layer.shape} in layer {name!r}, got {got}"
            )
        memory[name] = LayerMemory.read(state, layer.weight.device)
    return memory


def remember_task(
    layer: BoundedLayer, before: LayerMemory | None, current: LayerMemory | None, inputs: Inputs, share: float
) -> LayerMemory:
    """Return the memory of a layer with the inputs of a task added.

    Consolidations without a step in between are one task: their moments are averaged.

    Args:
        layer: the layer.
        before: its memory before the task.
        current: its memory after earlier consolidations of the task, or None.
        inputs: the inputs of the layer.
        share: see :func:`find_moments`.
    """
    anchor, count = layer.read(), 1 if current is None else current.consolidations + 1
    weights = anchor.to(working_dtype(anchor))
    rows, energies = join_calls(weights, [rows.to(weights.device) for rows in inputs.rows()])
    if not bool(torch.isfinite(energies).all()):
        raise ValueError(f"the weights of layer {layer.name!r} must be finite, got NaN or inf; lower the learning rate")
    used = torch.ones_like(energies, dtype=torch.bool) if inputs.used is None else inputs.used.view(energies.shape)
    # before + (mean of `count` consolidations) = (before + new) / count + current * (count - 1) / count
    past = [(own, n / count) for own, n in ((before, 1), (current, count - 1)) if own is not None]
    parts, energies, tail = [rows / count**0.5], energies / count, rows.new_zeros(len(rows), dtype=torch.float64)
    for own, weight in past:
        parts.append(own.moments.rows.to(rows.dtype) * weight**0.5)
        tail = tail + own.moments.tail * weight
        energies = energies + past_energies(weights, own.moments) * weight
        used = used | own.used
    moments = find_moments(torch.cat(parts, 1), tail, share)
    return LayerMemory(anchor, moments, energies, used, 1 + (0 if before is None else before.tasks), count)


def grow_memory(memory: LayerMemory, layer: BoundedLayer) -> LayerMemory:
    """Return the memory of a layer that has grown by rows, or by groups of rows. The new ones are free."""
    before, after = tuple(memory.anchor.shape), layer.shape
    groups, rows = after[0] - before[0], after[1] - before[1]
    if after[2] != before[2] or min(groups, rows) < 0 or (groups and rows):
        raise ValueError(
            f"layer {layer.name!r} may only grow by rows, got groups, rows and inputs {after}, which were {before}"
        )
    grown, old = memory.state_dict(), memory.anchor
    grown["anchor"] = layer.read()
    grown["anchor"][: before[0], : before[1]] = old
    if groups:  # without inputs: all their rows are used, and may move freely
        for name in ("axes", "values", "tail", "energy", "used"):
            own = grown[name]
            grown[name] = torch.cat([own, own.new_full((groups, *own.shape[1:]), name == "used")])
    else:
        grown.update(energy=pad(memory.energy, (0, rows)), used=pad(memory.used, (0, rows)))
    return LayerMemory.read(grown, old.device)
