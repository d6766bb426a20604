"""Many gradients of the parameters of one block at a time."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from sfao.gating.layout import Layout
from sfao.gating.low_rank import low_rank, low_rank_product

#: The gradients of a block, one matrix a parameter; None for a parameter without a gradient.
Matrices = Sequence[Tensor | None]


class Stack(ABC):
    """Gradients of a block, numbered in the first dimension; a parameter has one in all of them or in none."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether no parameter has a gradient."""

    @abstractmethod
    def squares(self) -> Tensor:
        """Squared norms, in float64."""

    @abstractmethod
    def matrices(self, scales: Tensor) -> list[Tensor | None]:
        """(number x rows x columns) for each parameter, each gradient times its scale."""

    @abstractmethod
    def factors(self, layout: Layout, rank: int) -> tuple[Tensor, Tensor]:
        """The best of this rank: left (number x rank x rows) and right (number x rank x width)."""

    @abstractmethod
    def select(self, numbers: Tensor) -> "Stack":
        """Some of them."""


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
        return [None if gradient is None else gradient * _to_each(gradient, scales) for gradient in self.gradients]

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
    """Gradients of a Linear layer as sums of outer products, one an example: of its output's gradient and its input."""

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
    def of(deltas: Tensor, inputs: Sequence[Tensor]) -> "OuterStack":
        right = torch.cat(list(inputs), dim=2).double()
        left = deltas.double()
        return OuterStack(deltas, inputs, left @ left.mT, right @ right.mT)

    def squares(self) -> Tensor:
        # Rounding can leave a sum that cancels below zero.
        return (self.gram_of_deltas * self.gram_of_inputs).sum((1, 2)).clamp(min=0)

    def matrices(self, scales: Tensor) -> list[Tensor | None]:
        deltas = self.deltas * _to_each(self.deltas, scales)
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


def _to_each(gradients: Tensor, scales: Tensor) -> Tensor:
    return scales.to(gradients.dtype).view(-1, 1, 1)
