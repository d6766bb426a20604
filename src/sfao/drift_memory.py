"""The memory of :class:`sfao.DriftBound`: second moments of each layer's past inputs, and its weights at that time.

A layer is a stack of matrices W (groups x rows x width) that act on inputs x.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sfao.bounded_layers import BoundedLayer
from sfao.capture import Inputs
from sfao.distributed import Ranks, full_tensor, shard_like

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
    """The memory of one layer."""

    #: W*: the parameters at the last consolidation
    anchor: tuple[Tensor, ...]
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
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that every rank holds as a whole."""
        return {**vars(self.moments), "energy": self.energy, "used": self.used}

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.anchor, *self.tensors.values()))

    def broadcast(self, ranks: Ranks) -> "LayerMemory":
        """Return the memory as the first rank has computed it: others may round differently."""
        shared = ranks.broadcast({name: tensor.cpu() for name, tensor in self.tensors.items()})
        return replace(self, **_read_tensors(shared, self.energy.device))

    def allowance(self, tolerance: float, rows: Tensor) -> Tensor:
        """Return the allowed drift, above 0, of these rows, a mask (groups x rows)."""
        initialized = (rows.sum(1) * self.moments.trace).sum() / (3 * self.moments.axes.shape[1])
        energy = (self.energy * rows).sum().maximum(SMALLEST_OUTPUT**2 * initialized)
        return (tolerance**2 / self.tasks * energy).clamp_min(1e-300)

    def state_dict(self) -> dict[str, Any]:
        """Return the memory in plain containers and tensors."""
        counts = {"tasks": self.tasks, "consolidations": self.consolidations}
        return {"anchor": [full_tensor(tensor) for tensor in self.anchor], **self.tensors, **counts}


def read_memory(states: Mapping[str, Any], layers: Mapping[str, BoundedLayer]) -> dict[str, LayerMemory]:
    """Return the memory of these layers; raise a RuntimeError if it belongs to another model."""
    memory = {}
    for name, state in states.items():
        if name not in layers:
            raise RuntimeError(f"`state_dict` must belong to this model, but the model has no layer {name!r} to bound")
        layer = layers[name]
        shapes = [tuple(parameter.shape) for parameter in layer.parameters]
        got = [tuple(tensor.shape) for tensor in state["anchor"]]
        if got != shapes:
            raise RuntimeError(f"`state_dict` must have shapes {shapes} in layer {name!r}, got {got}")
        pairs = zip(state["anchor"], layer.parameters, strict=True)
        anchor = tuple(shard_like(tensor.to(own.device, own.dtype), own) for tensor, own in pairs)
        tensors = _read_tensors(state, layer.weight.device)
        memory[name] = LayerMemory(anchor, **tensors, tasks=state["tasks"], consolidations=state["consolidations"])
    return memory


def _read_tensors(state: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    axes, values, tail, energy, used = (state[name].to(device) for name in ("axes", "values", "tail", "energy", "used"))
    return {"moments": Moments(axes, values, tail), "energy": energy, "used": used}


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
    weights, count = layer.read(), 1 if current is None else current.consolidations + 1
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
    anchor = tuple(parameter.detach().clone() for parameter in layer.parameters)
    return LayerMemory(anchor, moments, energies, used, 1 + (0 if before is None else before.tasks), count)


def grow_memory(memory: LayerMemory, old: BoundedLayer, new: BoundedLayer) -> LayerMemory:
    """Return the memory of a layer with more rows, or more groups of rows. The new ones are free."""
    before, after = ([tuple(p.shape) for p in layer.parameters] for layer in (old, new))
    has_grown = len(before) == len(after) and all(
        a[1:] == b[1:] and a[0] <= b[0] for a, b in zip(before, after, strict=True)
    )
    groups, rows = new.groups - old.groups, new.rows - old.rows
    if not has_grown or (groups and rows):
        raise ValueError(f"layer {new.name!r} may only grow by rows, got shapes {after}, which were {before}")
    pairs = zip(memory.anchor, new.parameters, strict=True)
    anchor = tuple(torch.cat([own, parameter.detach()[len(own) :]]) for own, parameter in pairs)
    if not groups:
        return replace(memory, anchor=anchor, energy=pad(memory.energy, (0, rows)), used=pad(memory.used, (0, rows)))
    # Groups without inputs: all rows are used, and may move freely.
    tensors = {
        name: torch.cat([own, own.new_full((groups, *own.shape[1:]), name == "used")])
        for name, own in memory.tensors.items()
    }
    return replace(memory, anchor=anchor, **_read_tensors(tensors, memory.energy.device))
