"""The gradient of a layer as the memory works on it."""

from collections.abc import Sequence
from functools import cached_property
from math import hypot, isfinite

import torch
from torch import Tensor

from sfao.gating.layout import Layout, as_matrices, channels_last, in_memory_order

# Norms between these are far from where squares leave the range of float32; gradients beyond are rescaled.
SMALL, LARGE = 1e-12, 1e12
SMALLEST = 1e-300


class NonFiniteGradient(ValueError):  # noqa: N818, it names what was found
    """A gradient with an entry that is no number: training has diverged."""


class LayerGradient:
    """The gradients of a layer's parameters (None where there is none), with their joint norm.

    `matrices` are in float32 or float64 and share memory with the gradients where they can: `write_back`
    copies only what does not. Gradients of extreme size are worked on at norm 1.
    """

    def __init__(self, gradients: Sequence[Tensor | None], layouts: Sequence[Layout]) -> None:
        self.gradients = gradients
        self.present = [gradient for gradient in gradients if gradient is not None and gradient.numel()]
        self._layouts = layouts

    @cached_property
    def norm(self) -> float:
        return norm(self.present)

    @cached_property
    def _scale(self) -> float:
        return 1.0 if self.norm == 0 or SMALL < self.norm < LARGE else 1.0 / self.norm

    @property
    def channels_last(self) -> list[int | None]:
        """How each gradient lies in memory: see `Memory.arrange`."""
        return [None if gradient is None else channels_last(gradient) for gradient in self.gradients]

    @property
    def is_finite(self) -> bool:
        return isfinite(self.norm)

    @property
    def working_norm(self) -> float:
        return self.norm * self._scale

    def matrices(self) -> list[Tensor | None]:
        return as_matrices(self._layouts, [None if g is None else self._working(g) for g in self.gradients])

    def write_back(self, matrices: Sequence[Tensor | None]) -> None:
        for gradient, matrix in zip(self.gradients, matrices, strict=True):
            if gradient is None or matrix is None:
                continue
            if self._scale != 1:
                place = in_memory_order(gradient)
                place.copy_((matrix.double() / self._scale).view(place.shape))
            elif matrix.data_ptr() != gradient.data_ptr():
                place = in_memory_order(gradient)
                place.copy_(matrix.view(place.shape))

    def zero_(self) -> None:
        for gradient in self.present:
            gradient.zero_()

    def _working(self, gradient: Tensor) -> Tensor:
        dtype = working_dtype(gradient)
        working = gradient.to(dtype) if self._scale == 1 else (gradient.double() * self._scale).to(dtype)
        return working if channels_last(working) else working.contiguous()


def norm(tensors: Sequence[Tensor]) -> float:
    """The Euclidean norm over several tensors, for entries of any size; not finite if an entry is not."""
    if not tensors:
        return 0.0
    plain = hypot(*(float(torch.linalg.vector_norm(tensor, dtype=working_dtype(tensor))) for tensor in tensors))
    if SMALL < plain < LARGE:
        return plain
    largest = float(torch.stack([tensor.abs().max().double() for tensor in tensors]).max())
    if not isfinite(largest):
        return largest
    if largest < SMALLEST:  # its inverse would not be finite
        return 0.0
    return largest * hypot(*(float(torch.linalg.vector_norm(tensor.double() / largest)) for tensor in tensors))


def working_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
