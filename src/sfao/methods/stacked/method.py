"""The interface of stacked methods: the steps of many runs of one method, made together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from sfao.methods.method import Method, MethodOptions
from sfao.methods.stacked.descent import StackedDescent
from sfao.methods.stacked.models import StackedModels


@dataclass(frozen=True)
class StackReport:
    """The state of one run after the last step: what its telemetry tells, and why it can go no further, if so."""

    loss: float
    decisions: dict[str, dict[str, int]] = field(default_factory=dict)
    looks: dict[str, dict[str, float]] = field(default_factory=dict)
    #: The error of a run whose gradient was not finite, and the number of steps it had made here by then.
    error: str = ""
    steps_made: int = 0


class StackedMethod:
    """Plain gradient descent of many runs at once.

    Made at the start of a task, or in the middle of one, from the methods of the runs, whose state it copies. They
    stay as they were until `hand_over`, so a stack that is abandoned has changed nothing. What a method does between
    tasks, it does itself.
    """

    #: The options that may differ between the runs of a stack.
    varying: ClassVar[frozenset[str]] = frozenset({"fresh"})

    def __init__(self, methods: Sequence[Method]) -> None:
        self.methods = methods
        self.models = StackedModels([method.model for method in methods])
        self.names = [self.models.find_names(number) for number in range(len(methods))]
        self.descent = StackedDescent([method.training for method in methods], methods[0].device)
        self.descent.take_over([method.optimizer for method in methods], self.names)

    @staticmethod
    def find_obstacle(options: MethodOptions) -> str | None:
        """Return why a method with these options cannot be stacked; None when it can."""
        return None

    @torch.no_grad()
    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        """Make one update of every run on its own batch, and return their losses."""
        losses, gradients = self.models.take_gradients(inputs, targets, outputs)
        self.descend(gradients)
        return losses

    def descend(self, gradients: dict[str, Tensor]) -> None:
        """Move every run, given the gradients of its loss."""
        self.descent.descend(self.models.parameters, gradients)

    def report(self, losses: Tensor) -> list[StackReport]:
        """Return the reports of all runs; waits for a device."""
        return [StackReport(loss) for loss in losses.tolist()]

    def hand_over(self) -> None:
        """Bring the methods and their models to the state of the stack."""
        self.models.hand_over()
        self.descent.hand_over([method.optimizer for method in self.methods], self.names)
