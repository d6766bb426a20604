"""The common part of all storages: slots in the first dimension of a few tensors, and the gradients for them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from sfao.gating._layout import Layout
from sfao.gating._low_rank import low_rank, low_rank_product

ALL = slice(None)
#: What a kernel that loads several entries at once wants an address to be a multiple of.
ALIGNED_BYTES = 16
#: The gradients of a block, one matrix per parameter; None for a parameter without a gradient.
Matrices = Sequence[Tensor | None]


class Stack(ABC):
    """Gradients of a block, numbered in the first dimension; a parameter has one in all of them or in none."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """True if no parameter has a gradient."""

    @abstractmethod
    def squares(self) -> Tensor:
        """Return squared norms, in float64."""

    @abstractmethod
    def matrices(self, scales: Tensor) -> list[Tensor | None]:
        """Return (number x rows x columns) for each parameter, each gradient times its scale."""

    @abstractmethod
    def factors(self, layout: Layout, rank: int) -> tuple[Tensor, Tensor]:
        """Return the best factors of this rank: left (number x rank x rows) and right (number x rank x width)."""

    @abstractmethod
    def select(self, numbers: Tensor) -> "Stack":
        """Return the gradients of these numbers."""


@dataclass(frozen=True)
class FullStack(Stack):
    """The gradients as they are."""

    gradients: Matrices

    @property
    def is_empty(self) -> bool:
        return all(gradient is None for gradient in self.gradients)

    def squares(self) -> Tensor:
        norms = [
            torch.linalg.vector_norm(gradient.flatten(1), dim=1, dtype=torch.float64)
            for gradient in self.gradients
            if gradient is not None
        ]
        return torch.stack(norms).square().sum(0)

    def matrices(self, scales: Tensor) -> list[Tensor | None]:
        return [None if gradient is None else gradient * _spread(gradient, scales) for gradient in self.gradients]

    def factors(self, layout: Layout, rank: int) -> tuple[Tensor, Tensor]:
        known = next(gradient for gradient in self.gradients if gradient is not None)
        filled = [
            known.new_zeros(len(known), layout.rows, columns) if gradient is None else gradient
            for gradient, columns in zip(self.gradients, layout.columns, strict=True)
        ]
        return low_rank(torch.cat(filled, dim=2), rank)

    def select(self, numbers: Tensor) -> "FullStack":
        return FullStack([None if gradient is None else gradient[numbers] for gradient in self.gradients])


@dataclass(frozen=True)
class OuterStack(Stack):
    """Gradients of a Linear layer as sums of outer products, one per example: its output's gradient and its input."""

    #: (number x examples x rows)
    deltas: Tensor
    #: (number x examples x columns) of each parameter; those of a bias are ones
    inputs: Sequence[Tensor]
    #: Inner products between the examples, in float64: norms and factors need nothing larger
    gram_of_deltas: Tensor
    gram_of_inputs: Tensor

    @property
    def is_empty(self) -> bool:
        return False

    @staticmethod
    def make(deltas: Tensor, inputs: Sequence[Tensor]) -> "OuterStack":
        right = torch.cat(list(inputs), dim=2).double()
        left = deltas.double()
        return OuterStack(deltas, inputs, left @ left.mT, right @ right.mT)

    def squares(self) -> Tensor:
        # Rounding can leave a sum that cancels below zero.
        return (self.gram_of_deltas * self.gram_of_inputs).sum((1, 2)).clamp(min=0)

    def matrices(self, scales: Tensor) -> list[Tensor | None]:
        deltas = self.deltas * _spread(self.deltas, scales)
        return [deltas.mT @ inputs for inputs in self.inputs]

    def factors(self, layout: Layout, rank: int) -> tuple[Tensor, Tensor]:
        left, right, examples = self.deltas, torch.cat(list(self.inputs), dim=2), self.deltas.shape[1]
        if examples > rank:
            return low_rank_product(left, right, rank, self.gram_of_deltas, self.gram_of_inputs)
        missing = (0, 0, 0, rank - examples)
        return pad(left, missing), pad(right, missing)

    def select(self, numbers: Tensor) -> "OuterStack":
        inputs = [inputs[numbers] for inputs in self.inputs]
        return OuterStack(self.deltas[numbers], inputs, self.gram_of_deltas[numbers], self.gram_of_inputs[numbers])


def _spread(gradients: Tensor, scales: Tensor) -> Tensor:
    return scales.to(gradients.dtype).view(-1, 1, 1)


class Block(ABC):
    """The stored directions of the parameters of one matrix, one slot per direction.

    Every method that takes gradients leaves out the parameters whose gradient is None: frozen or unused
    parameters take no part in inner products. At least one must have a gradient.
    """

    kind: ClassVar[str]
    #: True if directions of several ranks can be held.
    has_rank: ClassVar[bool]
    #: The unit of what bounds the time of a product: bytes read, or operations.
    work_unit: ClassVar[str]

    def __init__(self, layout: Layout, dtype: torch.dtype) -> None:
        self.layout = layout
        self.dtype = dtype
        self.count = 0
        self.hold_tensors([torch.empty(0, *shape, dtype=dtype, device="cpu") for shape in self.slot_shapes()])

    @classmethod
    @abstractmethod
    def make(cls, layout: Layout, dtype: torch.dtype, rank: int) -> "Block":
        """Return an empty block; of another kind where this one would not save memory."""

    @classmethod
    @abstractmethod
    def make_like(cls, layout: Layout, tensors: Sequence[Tensor]) -> Self:
        """Return an empty block that can hold what another one held in `tensors`."""

    @abstractmethod
    def slot_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of what one direction takes in each of `tensors`."""

    @abstractmethod
    def encode(self, gradients: Stack, scales: Tensor) -> list[Tensor]:
        """Return what slots hold for these gradients, each times its scale."""

    @abstractmethod
    def dots(self, gradients: Matrices, index: Tensor | slice = ALL) -> Tensor:
        """Return inner products of the gradients with all directions, or with those of `index`."""

    @abstractmethod
    def subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        """Subtract the weighted sum of the directions from the gradients, in place."""

    @abstractmethod
    def squares(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        """Return squared norms in float64 of the directions in `slots`, over active parameters."""

    @abstractmethod
    def gram(self, slots: Tensor, active: Sequence[bool]) -> Tensor:
        """Return inner products in float64 of the directions in `slots` with all of them, over active parameters."""

    @abstractmethod
    def scale_(self, factors: Tensor) -> None:
        """Multiply each direction held by its factor."""

    @abstractmethod
    def reorder(self, before: Sequence[int], after: Sequence[int]) -> list[Tensor]:
        """Return the directions held for gradients with `before` channels last as for those with `after`."""

    @property
    @abstractmethod
    def kernel_tensors(self) -> tuple[Tensor | None, list[Tensor]] | None:
        """Left factors and right factors, or no left and rows, as the kernels read them; None if they cannot."""

    @property
    @abstractmethod
    def work_per_entry(self) -> int:
        """Bytes read, or operations, for each entry of the layout in a product with one direction."""

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def bytes_per_direction(self) -> int:
        return sum(prod(shape) * self.dtype.itemsize for shape in self.slot_shapes())

    def store(self, slots: Sequence[int], gradients: Stack, scales: Tensor) -> None:
        """Store the gradients, each times its scale, as the directions of `slots`; zero where there is none."""
        if gradients.is_empty:
            self.set_slots(slots, [tensor.new_zeros(len(slots), *shape) for tensor, shape in self._slots()])
        else:
            self.set_slots(slots, self.encode(gradients, scales))

    def set_slots(self, slots: Sequence[int], values: Sequence[Tensor]) -> None:
        first, end = slots[0], slots[0] + len(slots)
        in_a_row = list(slots) == list(range(first, end))
        for tensor, value in zip(self.tensors, values, strict=True):
            tensor[slice(first, end) if in_a_row else torch.tensor(slots, device=tensor.device)] = value.to(tensor)
        self.resize(max(self.count, *(slot + 1 for slot in slots)))

    def copy_slot(self, slot: int) -> list[Tensor]:
        """Return a copy of one slot, as `set_slots` takes it."""
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
        self.hold_tensors(grown)

    def to(self, device: torch.device) -> None:
        self.hold_tensors([tensor.to(device) for tensor in self.tensors])

    def arrange(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Hold the directions in the order of gradients with `after` channels last."""
        slots = len(self.tensors[0])
        self.hold_tensors(self.reorder(before, after))
        self.reserve(slots)

    def grow(self, layout: Layout) -> None:
        """Hold the directions of parameters with more rows, in which they are zero."""
        self.layout = layout
        missing = [shape[-1] - tensor.shape[-1] for tensor, shape in self._slots()]
        self.hold_tensors([pad(tensor, (0, more)) for tensor, more in zip(self.tensors, missing, strict=True)])

    def load(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        """Hold these directions and no others."""
        for tensor, shape in zip(tensors, self.slot_shapes(), strict=True):
            if tensor.shape[1:] != shape:
                raise ValueError(f"directions of shape {tuple(tensor.shape[1:])} where {shape} is needed")
        self.count = len(tensors[0])
        self.hold_tensors([tensor.to(device, copy=True) for tensor in tensors])

    def hold_tensors(self, tensors: list[Tensor]) -> None:
        """Hold as many directions in these tensors."""
        self.tensors = tensors
        self.resize(self.count)

    def _slots(self) -> list[tuple[Tensor, tuple[int, ...]]]:
        return list(zip(self.tensors, self.slot_shapes(), strict=True))
