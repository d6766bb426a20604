"""What the two storages of a block share: slots in the first dimension of a few tensors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from sfao.gating.layout import Layout

#: The gradients of a block, one matrix a parameter; None for a parameter without a gradient.
Matrices = Sequence[Tensor | None]


class Block(ABC):
    """The stored directions of the parameters of one matrix, a slot a direction.

    Every method that takes gradients leaves out the parameters whose gradient is None: frozen or unused
    parameters take no part in inner products.
    """

    kind: ClassVar[str]

    def __init__(self, layout: Layout, dtype: torch.dtype) -> None:
        self.layout = layout
        self.dtype = dtype
        self.tensors = [torch.empty(0, *shape, dtype=dtype) for shape in self.slot_shapes()]

    @abstractmethod
    def slot_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of what one direction takes in each of `tensors`."""

    @abstractmethod
    def write(self, slot: int, gradients: Matrices, scale: float, generator: torch.Generator) -> None:
        """Store `scale` times the gradients as the direction of `slot`."""

    @abstractmethod
    def dots(self, gradients: Matrices, count: int, index: Tensor | None = None) -> Tensor:
        """Inner products of the gradients with the first `count` directions, or with those of `index`."""

    @abstractmethod
    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        """Subtract the weighted sum of the first `len(weights)` directions from the gradients, in place."""

    @abstractmethod
    def squares(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        """Squared norms in float64 of the directions in `slots`, over active parameters."""

    @abstractmethod
    def gram(self, slots: Tensor, count: int, active: Sequence[bool]) -> Tensor:
        """Inner products in float64 of the directions in `slots` with the first `count`, over active parameters."""

    @property
    def bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    @property
    def bytes_per_direction(self) -> int:
        return sum(prod(shape) * self.dtype.itemsize for shape in self.slot_shapes())

    def reserve(self, slots: int, count: int) -> None:
        """Make room for `slots` directions, keeping the first `count`; new slots are zero."""
        grown = [tensor.new_zeros(slots, *shape) for tensor, shape in self._slots()]
        for new, old in zip(grown, self.tensors, strict=True):
            new[:count] = old[:count]
        self.tensors = grown

    def to(self, device: torch.device) -> None:
        self.tensors = [tensor.to(device) for tensor in self.tensors]

    def slot(self, slot: int) -> list[Tensor]:
        return [tensor[slot].clone() for tensor in self.tensors]

    def restore_slot(self, slot: int, saved: Sequence[Tensor]) -> None:
        for tensor, value in zip(self.tensors, saved, strict=True):
            tensor[slot] = value

    def _slots(self) -> list[tuple[Tensor, tuple[int, ...]]]:
        return list(zip(self.tensors, self.slot_shapes(), strict=True))
