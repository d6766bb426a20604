"""What the two storages of a block share: slots in the first dimension of a few tensors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from sfao.gating.layout import Layout
from sfao.gating.stack import Matrices, Stack

ALL = slice(None)
#: What a kernel that loads several entries at once wants an address to be a multiple of.
ALIGNED_BYTES = 16


class Block(ABC):
    """The stored directions of the parameters of one matrix, a slot a direction.

    Every method that takes gradients leaves out the parameters whose gradient is None: frozen or unused
    parameters take no part in inner products. At least one must have a gradient.
    """

    kind: ClassVar[str]

    def __init__(self, layout: Layout, dtype: torch.dtype) -> None:
        self.layout = layout
        self.dtype = dtype
        self.count = 0
        self._set_tensors([torch.empty(0, *shape, dtype=dtype, device="cpu") for shape in self.slot_shapes()])

    @abstractmethod
    def slot_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of what one direction takes in each of `tensors`."""

    @abstractmethod
    def encode(self, gradients: Stack, scales: Tensor) -> list[Tensor]:
        """What slots hold for these gradients, each times its scale."""

    @abstractmethod
    def dots(self, gradients: Matrices, index: Tensor | slice = ALL) -> Tensor:
        """Inner products of the gradients with all directions, or with those of `index`."""

    @abstractmethod
    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        """Subtract the weighted sum of the directions from the gradients, in place."""

    @abstractmethod
    def squares(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        """Squared norms in float64 of the directions in `slots`, over active parameters."""

    @abstractmethod
    def gram(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        """Inner products in float64 of the directions in `slots` with all of them, over active parameters."""

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def bytes_per_direction(self) -> int:
        return sum(prod(shape) * self.dtype.itemsize for shape in self.slot_shapes())

    def write(self, slots: Sequence[int], gradients: Stack, scales: Tensor) -> None:
        """Store the gradients, each times its scale, as the directions of `slots`; zero where there is none."""
        if gradients.is_empty:
            self.put(slots, [tensor.new_zeros(len(slots), *shape) for tensor, shape in self._slots()])
        else:
            self.put(slots, self.encode(gradients, scales))

    def put(self, slots: Sequence[int], values: Sequence[Tensor]) -> None:
        first, end = slots[0], slots[0] + len(slots)
        in_a_row = list(slots) == list(range(first, end))
        for tensor, value in zip(self.tensors, values, strict=True):
            tensor[slice(first, end) if in_a_row else torch.tensor(slots, device=tensor.device)] = value.to(tensor)
        self.resize(max(self.count, *(slot + 1 for slot in slots)))

    def get(self, slot: int) -> list[Tensor]:
        """A copy of one slot, as `put` takes it."""
        return [tensor[slot : slot + 1].clone() for tensor in self.tensors]

    def resize(self, count: int) -> None:
        """Let the first `count` slots be the directions held."""
        self.count = count
        self.used = [tensor[:count] for tensor in self.tensors]

    def reserve(self, slots: int) -> None:
        """Make room for `slots` directions; new slots are zero."""
        grown = [tensor.new_zeros(slots, *shape) for tensor, shape in self._slots()]
        for new, old in zip(grown, self.used, strict=True):
            new[: self.count] = old
        self._set_tensors(grown)

    @abstractmethod
    def scale_(self, factors: Tensor) -> None:
        """Multiply each direction held by its factor."""

    def to(self, device: torch.device) -> None:
        self._set_tensors([tensor.to(device) for tensor in self.tensors])

    @abstractmethod
    def arranged(self, before: Sequence[int], after: Sequence[int]) -> list[Tensor]:
        """The directions held, arranged for gradients with `before` channels last, for those with `after`."""

    def arrange(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Hold them so."""
        slots = len(self.tensors[0])
        self._set_tensors(self.arranged(before, after))
        self.reserve(slots)

    def load(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        """Hold these directions and no others."""
        for tensor, shape in zip(tensors, self.slot_shapes(), strict=True):
            if tensor.shape[1:] != shape:
                raise ValueError(f"directions of shape {tuple(tensor.shape[1:])} where {shape} is needed")
        self.count = len(tensors[0])
        self._set_tensors([tensor.to(device, copy=True) for tensor in tensors])

    def _set_tensors(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.resize(self.count)

    def _slots(self) -> list[tuple[Tensor, tuple[int, ...]]]:
        return list(zip(self.tensors, self.slot_shapes(), strict=True))
