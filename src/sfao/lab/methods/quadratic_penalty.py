"""Quadratic penalties on leaving what past tasks learnt, and the two ways to descend on them: EWC and SI share these.

The proximal step is a step on the loss of the task alone, then the exact minimiser of

    penalty(theta) + |theta - theta_half|^2 / (2 h),        h the size of the step

from where that step led. The penalty is separable, so this is a weighted mean of theta_half and the anchor in every
coordinate: whatever the strength, it ends between the two, so the penalty cannot make training diverge. The gradient
of the penalty never enters momentum. For the two steps together to rest where loss + penalty is least, h must be how
far one unit of steady gradient moves a parameter: lr, or with heavy-ball momentum lr / (1 - momentum).
"""

from collections.abc import Sequence
from math import inf, isnan
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.streams.stream import Task


class QuadraticPenalty:
    """1/2 sum of weight * (theta - anchor)^2 over all coordinates, with weights of zero or more.

    Several penalties add up to one, exactly: sum_t w_t (theta - a_t)^2 = W (theta - A)^2 + constant, with W the sum
    of the weights and A the weighted mean of the anchors. However many tasks, two tensors per parameter are kept and,
    for proximal steps of `step_size`, a third with the share of the way to the anchor that one step goes.
    """

    def __init__(self, parameters: Sequence[Tensor], step_size: float | None) -> None:
        self.parameters = parameters
        self.step_size = step_size
        self.weights: list[Tensor] = []
        self.anchors: list[Tensor] = []
        #: The share of the way to the anchor that a proximal step goes.
        self._shares: list[Tensor] = []

    @torch.no_grad()
    def add(self, weights: Sequence[Tensor]) -> None:
        """Add a penalty anchored where the parameters are now."""
        if not self.weights:
            self.replace(weights)
            return
        joined = [old + new for old, new in zip(self.weights, weights, strict=True)]
        for anchor, here, new, sum_ in zip(self.anchors, self.parameters, weights, joined, strict=True):
            anchor.lerp_(here, torch.where(sum_ > 0, new / sum_, 1.0))
        self._weigh(joined)

    @torch.no_grad()
    def replace(self, weights: Sequence[Tensor]) -> None:
        """Replace the penalty by one anchored where the parameters are now."""
        self.anchors = [parameter.detach().clone() for parameter in self.parameters]
        self._weigh(list(weights))

    def _weigh(self, weights: list[Tensor]) -> None:
        self.weights = weights
        if self.step_size is None:
            return
        stiffness = [weight * self.step_size for weight in weights]
        # 1 where the product is beyond the range of floats: x / (1 + x) would be inf / inf.
        self._shares = [torch.where(x.isinf(), 1.0, x / (1 + x)) for x in stiffness]

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Add the gradient of the penalty to `.grad`, as a new tensor."""
        for parameter, weight, anchor in zip(self.parameters, self.weights, self.anchors, strict=True):
            pull = weight * (parameter - anchor)
            parameter.grad = pull if parameter.grad is None else parameter.grad + pull

    @torch.no_grad()
    def minimise(self) -> None:
        """Make the proximal step: theta <- theta + h W / (1 + h W) * (A - theta)."""
        for parameter, share, anchor in zip(self.parameters, self._shares, self.anchors, strict=True):
            parameter.lerp_(anchor, share)

    @property
    def steepest(self) -> float:
        """The largest weight, hence the largest curvature; NaN if any is."""
        return float(torch.stack([weight.max() for weight in self.weights if weight.numel()]).max())

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.weights, *self.anchors, *self._shares))

    def state_dict(self) -> dict[str, Any]:
        return {name: [tensor.clone() for tensor in getattr(self, name)] for name in ("weights", "anchors")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        device = self.parameters[0].device
        self.anchors = [anchor.to(device, copy=True) for anchor in state["anchors"]]
        self._weigh([weight.to(device, copy=True) for weight in state["weights"]])


class PenaltyOptions(MethodOptions):
    #: The factor on the penalty.
    strength: float = Field(ge=0, allow_inf_nan=False)
    step: Literal["proximal", "gradient"] = "proximal"


class PenalisedMethod(Method):
    """Descent on the loss of the task plus a quadratic penalty, whose weights include the strength."""

    options: PenaltyOptions

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.is_proximal = self.options.step == "proximal"
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.penalty = QuadraticPenalty(self.parameters, steady_step(training) if self.is_proximal else None)
        #: The largest curvature of the penalty that a task was trained under; None before there was one.
        self.curvature: float | None = None

    @classmethod
    def check_training(cls, training: Training, options: PenaltyOptions) -> None:
        super().check_training(training, options)
        if options.step == "proximal" and not training.is_descent:
            raise ValueError(
                f"`options.step` must be gradient with optimizer {training.optimizer}: a proximal step of {cls.name} "
                "needs one step size for all parameters, got 'proximal'"
            )

    def begin_task(self, number: int, task: Task) -> None:
        if self.penalty.weights:
            # No number is larger than infinity, but NaN would hide in a maximum.
            steepest = self.penalty.steepest
            self.curvature = max(self.curvature or 0.0, inf if isnan(steepest) else steepest)

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets, outputs)
        loss.backward()
        self.descend()
        return loss.detach()

    def descend(self) -> None:
        """Make one update, given the gradient of the loss in `.grad`."""
        acts = self.options.strength > 0 and bool(self.penalty.weights)
        if acts and not self.is_proximal:
            self.penalty.add_gradient()
        self.optimizer.step()
        if acts and self.is_proximal:
            self.penalty.minimise()

    @property
    def memory_bytes(self) -> int:
        return self.penalty.bytes

    def concerns(self) -> list[str]:
        strength = self.options.strength
        if strength == 0:
            return [f"{self.name}: `strength` is 0, so there is no penalty and every update is that of sgd"]
        if self.curvature is None:
            return []
        if self.curvature == 0:
            return [f"{self.name}: no parameter has any importance, so the penalty is zero, and every update sgd's"]
        if not self.training.is_descent:
            return []  # Adam's step is bounded, whatever the penalty
        stiffness = steady_step(self.training) * self.curvature
        if stiffness < torch.finfo(self.parameters[0].dtype).eps:
            return [
                f"{self.name}: the penalty is lost in rounding (step size * largest curvature = {stiffness:.2g}), "
                f"so every update is that of sgd; `strength` is {strength:g}"
            ]
        bound = largest_stable_curvature(self.training)
        if not self.is_proximal and self.curvature > bound:
            return [
                f"{self.name}: the gradient step is unstable where the curvature of the penalty exceeds {bound:.4g} "
                f"(lr {self.training.lr:g}, momentum {self.training.momentum:g} {self.training.momentum_form}), "
                f'and it reached {self.curvature:.4g} with `strength` {strength:g}; step="proximal" cannot diverge'
            ]
        return []

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "penalty": self.penalty.state_dict(), "curvature": self.curvature}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.penalty.load_state_dict(state["penalty"])
        self.curvature = state["curvature"]


def steady_step(training: Training) -> float:
    """Return the distance that one step moves a parameter per unit of a constant gradient."""
    heavy = training.momentum_form == "heavy_ball"
    return training.lr / (1 - training.momentum) if heavy else training.lr


def largest_stable_curvature(training: Training) -> float:
    """Return the largest curvature of a quadratic on which gradient descent is stable.

    2 / lr; heavy-ball momentum is stable up to 2 (1 + momentum) / lr, and its average form, the same with
    lr (1 - momentum) for lr, up to 2 (1 + momentum) / (lr (1 - momentum)).
    """
    lr, beta = training.lr, training.momentum
    step = lr * (1 - beta) if training.momentum_form == "ema" else lr
    return 2 * (1 + beta) / step if step > 0 else float("inf")
