"""EWC and SI of many runs at once: steps on the loss and on a quadratic penalty, which each run has made itself."""

from collections.abc import Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor

from sfao.methods.method import Method
from sfao.methods.quadratic_penalty import PenalisedMethod
from sfao.methods.si import SI
from sfao.methods.stacked.method import StackedMethod
from sfao.methods.stacked.models import Tensors, stack


class StackedPenalty(StackedMethod):
    """Descent on loss and penalty; for EWC that is all."""

    varying: ClassVar[frozenset[str]] = frozenset({"strength", "variant", "decay", "fisher", "fisher_samples"})

    def __init__(self, methods: Sequence[Method]) -> None:
        super().__init__(methods)
        own = [cast(PenalisedMethod, method) for method in methods]
        self._is_proximal = own[0].is_proximal
        names = list(self.models.parameters)
        acting = [method.options.strength > 0 and bool(method.penalty.weights) for method in own]
        self._acts = any(acting)
        pulls = [method.penalty.shares if self._is_proximal else method.penalty.weights for method in own]
        #: Per parameter, the share of the way to the anchor, or the weights of the penalty; 0 of runs without one.
        self._pulls: Tensors = {}
        self._anchors: Tensors = {}
        for number, name in enumerate(names if self._acts else ()):
            held = [
                (pull[number], method.penalty.anchors[number]) if acts else _make_nothing(method.parameters[number])
                for method, pull, acts in zip(own, pulls, acting, strict=True)
            ]
            self._pulls[name] = stack([pull for pull, _ in held])
            self._anchors[name] = stack([anchor for _, anchor in held])

    def descend(self, gradients: Tensors) -> None:
        parameters = self.models.parameters
        if self._acts and not self._is_proximal:
            gradients = {
                name: gradient + self._pulls[name] * (parameters[name] - self._anchors[name])
                for name, gradient in gradients.items()
            }
        super().descend(gradients)
        if self._acts and self._is_proximal:
            for name, parameter in parameters.items():
                parameter.lerp_(self._anchors[name], self._pulls[name])


class StackedSI(StackedPenalty):
    """The same, and the loss that each coordinate removes on its way."""

    varying: ClassVar[frozenset[str]] = frozenset({"strength", "damping"})

    def __init__(self, methods: Sequence[Method]) -> None:
        super().__init__(methods)
        self._own = [cast(SI, method) for method in methods]
        self._gains = {
            name: stack([method.gains[number] for method in self._own])
            for number, name in enumerate(self.models.parameters)
        }

    def descend(self, gradients: Tensors) -> None:
        parameters = self.models.parameters
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        super().descend(gradients)
        for name, gradient in gradients.items():
            self._gains[name].addcmul_(gradient, before[name].sub_(parameters[name]))

    def hand_over(self) -> None:
        super().hand_over()
        for run, method in enumerate(self._own):
            for gain, stacked in zip(method.gains, self._gains.values(), strict=True):
                gain.copy_(stacked[run])


def _make_nothing(parameter: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pull and the anchor of a run that has no penalty."""
    return torch.zeros_like(parameter), parameter.detach()
