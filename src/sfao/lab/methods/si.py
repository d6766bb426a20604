"""Synaptic intelligence (Zenke, Poole and Ganguli 2017)."""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sfao.lab.methods.method import MethodOptions, Training
from sfao.lab.methods.quadratic_penalty import PenalisedMethod, PenaltyOptions
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.stream import Task


class SIOptions(PenaltyOptions):
    """strength * sum Omega (theta - theta*)^2, the paper's c, without a half."""

    #: From a sweep on validation data: split-mnist, domain, mlp, batch 32, lr 1e-3, no momentum, 2 epochs
    #: (2e3 to 3e3 are best there; 1e4 with heavy-ball momentum 0.9).
    strength: float = Field(3e3, ge=0, allow_inf_nan=False)
    #: The paper's xi: bounds the importance of parameters that hardly moved.
    damping: float = Field(0.1, gt=0, allow_inf_nan=False)


class SI(PenalisedMethod):
    """The importance of a parameter is the loss it removed on its way, divided by the square of that way.

    The path integral is over the gradient of the loss alone and the whole movement, the penalty's part included.
    As in the authors' code, an importance that sums to less than zero (the loss rose along that parameter) is zero.
    """

    name = "si"
    Options = SIOptions
    options: SIOptions
    search_space: ClassVar[SearchSpace] = {"strength": Range(10, 1e6, log=True), "damping": Range(1e-3, 1, log=True)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        # The anchor of past tasks is where the way of this one began.
        self.penalty.anchors = [parameter.detach().clone() for parameter in self.parameters]
        #: omega: the loss that each coordinate removed in this task.
        self.gains = [torch.zeros_like(parameter) for parameter in self.parameters]

    def descend(self) -> None:
        gradients = [parameter.grad for parameter in self.parameters]
        before = [parameter.detach().clone() for parameter in self.parameters]
        super().descend()
        for gain, gradient, old, new in zip(self.gains, gradients, before, self.parameters, strict=True):
            if gradient is not None:
                gain.addcmul_(gradient, old.sub_(new.detach()))

    @torch.no_grad()
    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        past = self.penalty.weights or [torch.zeros_like(gain) for gain in self.gains]
        new = (
            importance(gain, here - start, self.options.damping)
            for gain, here, start in zip(self.gains, self.parameters, self.penalty.anchors, strict=True)
        )
        weights = [(old + 2 * self.options.strength * omega).relu_() for old, omega in zip(past, new, strict=True)]
        self.penalty.replace(weights)
        for gain in self.gains:
            gain.zero_()

    @property
    def memory_bytes(self) -> int:
        return super().memory_bytes + sum(gain.nbytes for gain in self.gains)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "gains": [gain.clone() for gain in self.gains]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.gains = [gain.to(self.device, copy=True) for gain in state["gains"]]


def importance(gain: Tensor, way: Tensor, damping: float) -> Tensor:
    """Return the contribution of a task to Omega: omega / (Delta^2 + xi), equation 5 of the paper."""
    return gain / (way.square() + damping)
