"""Synaptic intelligence (Zenke, Poole and Ganguli 2017).

The importance of a parameter is the loss it removed on its way, divided by the square of that way. With g the gradient
of the loss, dtheta the steps of a task, and Delta their sum, the loss has the penalty

    strength sum_i Omega_i (theta_i - theta*_i)^2,
    Omega_i = sum over past tasks of  -sum g_i dtheta_i / (Delta_i^2 + damping).

The steps include the penalty's part. As in the authors' code, an importance below zero (the loss rose along that
parameter) counts as zero.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sfao.lab.methods.method import MethodOptions, Training
from sfao.lab.methods.quadratic_penalty import PenalizedMethod, PenaltyOptions
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.stream import Task


class SIOptions(PenaltyOptions):
    # From a sweep on validation data: split-mnist, domain, mlp, batch 32, lr 1e-3, no momentum, 2 epochs
    # (2e3 to 3e3 are best there; 1e4 with heavy-ball momentum 0.9).
    strength: float = Field(3e3, ge=0, description="The factor on the penalty, the paper's c.")
    damping: float = Field(
        0.1, gt=0, description="The paper's xi: bounds the importance of parameters that hardly moved."
    )


class SI(PenalizedMethod):
    name = "si"
    Options = SIOptions
    options: SIOptions
    search_space: ClassVar[SearchSpace] = {"strength": Range(10, 1e6, log=True), "damping": Range(1e-3, 1, log=True)}
    saved: ClassVar[tuple[str, ...]] = (*PenalizedMethod.saved, "gains")

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        # The anchor of past tasks is where this one began.
        self.anchors = [parameter.detach().clone() for parameter in self.parameters]
        #: The loss that each coordinate removed in this task, the paper's omega.
        self.gains = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def update(self, outputs: slice) -> None:
        gradients = [parameter.grad for parameter in self.parameters]  # the penalty's is added out of place
        before = [parameter.detach().clone() for parameter in self.parameters]
        super().update(outputs)
        for gain, gradient, old, new in zip(self.gains, gradients, before, self.parameters, strict=True):
            if gradient is not None:
                gain.addcmul_(gradient, old.sub_(new))

    @torch.no_grad()
    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        past = self.weights or [torch.zeros_like(gain) for gain in self.gains]
        new = (
            importance(gain, here - start, self.options.damping)
            for gain, here, start in zip(self.gains, self.parameters, self.anchors, strict=True)
        )
        self.replace_penalty(
            [(old + 2 * self.options.strength * omega).relu_() for old, omega in zip(past, new, strict=True)]
        )
        for gain in self.gains:
            gain.zero_()

    @property
    def memory_bytes(self) -> int:
        return super().memory_bytes + sum(gain.nbytes for gain in self.gains)


def importance(gain: Tensor, way: Tensor, damping: float) -> Tensor:
    """Return the contribution of a task to Omega: omega / (Delta^2 + xi), equation 5 of the paper."""
    return gain / (way.square() + damping)
