"""Clipping of gradients per unit, for models whose BatchNorm statistics are frozen (Brock et al. 2021)."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from sfao.bounded_layers import working_dtype
from sfao.cuda_graph import capture

#: Weights shorter than this count as this long.
SHORTEST = 1e-3


def unit_rows(tensor: Tensor) -> Tensor:
    """Return a view of a weight, or of its gradient, with one row per unit, in the order in which it lies in memory."""
    last = tensor.movedim(1, -1)
    return (last if last.is_contiguous() else tensor).flatten(1)


def unit_norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norms of all rows of several tensors, in float32 or float64."""
    return torch.cat([torch.linalg.vector_norm(unit_rows(t), dim=1, dtype=working_dtype(t)) for t in tensors])


def clip_units_(gradients: Sequence[Tensor], limits: Tensor) -> Tensor:
    """Scale every row of the gradients to at most its limit; return which rows were clipped. Zeros stay zeros."""
    norms = unit_norms(gradients)
    is_long = norms > limits
    scales = torch.where(is_long, limits / norms, 1.0)
    for gradient, scale in zip(gradients, scales.split([len(gradient) for gradient in gradients]), strict=True):
        gradient.mul_(scale.to(gradient.dtype).view(-1, *[1] * (gradient.ndim - 1)))
    return is_long


class UnitClip:
    """Clips each unit's gradient to at most `clip` times the norm of its weights, and counts how often it acts.

    A unit is a row of a weight. The norms of the weights are read after every :meth:`refresh`.
    """

    def __init__(self, clip: float) -> None:
        self.clip = clip
        self._sets: dict[tuple[int, ...], _WeightSet] = {}

    @torch.no_grad()
    def apply(self, parameters: Iterable[Tensor]) -> None:
        """Clip the gradients of these parameters, in place. Vectors and sparse gradients stay as they are."""
        own = [p for p in parameters if p.ndim > 1 and p.grad is not None and not p.grad.is_sparse]
        if not own:
            return
        # Of a sharded weight, this rank's rows.
        tensors: list[Any] = [*own, *(p.grad for p in own)]
        tensors = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
        weights, gradients = tensors[: len(own)], tensors[len(own) :]
        key = tuple([weight.data_ptr() for weight in weights])
        if key not in self._sets:
            self._sets[key] = _WeightSet(own, weights, self.clip)
        self._sets[key].apply(weights, gradients)

    def refresh(self) -> None:
        """Read the norms of the weights again at the next step."""
        for own in self._sets.values():
            own.is_fresh = False

    @property
    def counts(self) -> dict[Tensor, int]:
        """The most often that a unit of each weight was clipped; reading it waits for the device."""
        found: dict[Tensor, int] = {}
        for own in self._sets.values():
            for parameter, counts in zip(own.parameters, own.counts.cpu().split(own.rows), strict=True):
                found[parameter] = found.get(parameter, 0) + int(counts.max())
        return found


class _WeightSet:
    """Weights that have gradients in the same steps.

    On CUDA, a graph works on copies of the gradients, because launching the many small kernels takes longer than
    running them.
    """

    def __init__(self, parameters: list[Tensor], weights: list[Tensor], clip: float) -> None:
        self.parameters, self.rows, self._clip = parameters, [len(weight) for weight in weights], clip
        self.is_fresh = True
        self._limits = self._read_limits(weights)
        self.counts = torch.zeros_like(self._limits, dtype=torch.int64)
        self._buffers: list[Tensor] = []
        self._graph: Any = None

    def apply(self, weights: list[Tensor], gradients: list[Tensor]) -> None:
        if not self.is_fresh:
            self._limits.copy_(self._read_limits(weights))
            self.is_fresh = True
        if self._limits.device.type != "cuda":
            self.counts += clip_units_(gradients, self._limits)
            return
        if self._graph is None:
            self._buffers = [torch.zeros_like(gradient) for gradient in gradients]  # zeros are never clipped
            self._graph = capture(self._clip_buffers, self._limits.device)
        torch._foreach_copy_(self._buffers, gradients)
        self._graph.replay()
        torch._foreach_copy_(gradients, self._buffers)

    def _read_limits(self, weights: list[Tensor]) -> Tensor:
        return self._clip * unit_norms([weight.detach() for weight in weights]).clamp_min(SHORTEST)

    def _clip_buffers(self) -> None:
        self.counts += clip_units_(self._buffers, self._limits)
