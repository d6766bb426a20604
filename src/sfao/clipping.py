"""Clipping of gradients per unit, for models whose BatchNorm statistics are frozen (Brock et al. 2021)."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from sfao.bounded_layers import working_dtype
from sfao.cuda_graph import capture
from sfao.distributed import to_local

#: Weights shorter than this count as this long.
SHORTEST = 1e-3


def unit_norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norms of all rows of several tensors, in float32 or float64."""
    # The order in which a row lies in memory, which may be channels-last, is the fastest.
    lasts = [tensor.movedim(1, -1) for tensor in tensors]
    rows = [(last if last.is_contiguous() else own).flatten(1) for own, last in zip(tensors, lasts, strict=True)]
    return torch.cat([torch.linalg.vector_norm(own, dim=1, dtype=working_dtype(own)) for own in rows])


def clip_units_(gradients: Sequence[Tensor], limits: Tensor) -> Tensor:
    """Scale every row of the gradients to at most its limit; return which rows were longer. Zeros stay zeros."""
    norms = unit_norms(gradients)
    is_long = norms > limits
    scales = torch.where(is_long, limits / norms, 1.0)
    for gradient, scale in zip(gradients, scales.split([len(gradient) for gradient in gradients]), strict=True):
        gradient.mul_(scale.to(gradient.dtype).view(-1, *[1] * (gradient.ndim - 1)))
    return is_long


class UnitClip:
    """Clips each unit's gradient to at most `clip` times the norm of its weights, and counts how often it acts.

    A unit is a row of a weight; of a sharded one, the rows of this rank. The norms of the weights are read after every
    :meth:`refresh`.
    """

    def __init__(self, clip: float) -> None:
        self.clip = clip
        #: By the addresses of weights that have gradients in the same steps.
        self._sets: dict[tuple[int, ...], _WeightSet] = {}

    @torch.no_grad()
    def apply(self, parameters: Iterable[Tensor]) -> None:
        """Clip the gradients of these parameters, in place. Vectors and sparse gradients stay as they are."""
        own = [p for p in parameters if p.ndim > 1 and p.grad is not None and not p.grad.is_sparse]
        if own:
            weights = [to_local(parameter).detach() for parameter in own]
            key = tuple([weight.data_ptr() for weight in weights])
            if key not in self._sets:
                self._sets[key] = _WeightSet(own, weights, self.clip)
            self._sets[key].apply([to_local(p.grad) for p in own])  # type: ignore[arg-type]

    def refresh(self) -> None:
        """Read the norms of the weights again at the next step."""
        for own in self._sets.values():
            own.is_fresh = False

    @property
    def counts(self) -> dict[Tensor, int]:
        """The most often that a unit of each weight was clipped; reading it waits for the device."""
        found: dict[Tensor, int] = {}
        for own in self._sets.values():
            rows = [len(weight) for weight in own.weights]
            for parameter, counts in zip(own.parameters, own.counts.cpu().split(rows), strict=True):
                found[parameter] = found.get(parameter, 0) + int(counts.max())
        return found


class _WeightSet:
    """Weights that have gradients in the same steps.

    On CUDA, a graph works on copies of the gradients, because launching the many small kernels takes longer than
    running them.
    """

    def __init__(self, parameters: list[Tensor], weights: list[Tensor], clip: float) -> None:
        self.parameters, self.weights, self._clip = parameters, weights, clip
        self._limits = torch.zeros_like(unit_norms(weights))
        self.is_fresh = False
        self.counts = torch.zeros_like(self._limits, dtype=torch.int64)
        self._buffers: list[Tensor] = []
        self._graph: Any = None

    def apply(self, gradients: list[Tensor]) -> None:
        if not self.is_fresh:
            self._limits.copy_(self._clip * unit_norms(self.weights).clamp_min(SHORTEST))
            self.is_fresh = True
        if self.counts.device.type != "cuda":
            self._clip_(gradients)
            return
        if self._graph is None:
            self._buffers = [torch.zeros_like(gradient) for gradient in gradients]  # zeros are never clipped
            self._graph = capture(lambda: self._clip_(self._buffers), self.counts.device)
        torch._foreach_copy_(self._buffers, gradients)
        self._graph.replay()
        torch._foreach_copy_(gradients, self._buffers)

    def _clip_(self, gradients: list[Tensor]) -> None:
        self.counts += clip_units_(gradients, self._limits)
