"""Quadratic penalties on changing what past tasks learned, and two ways to descend on them: shared by EWC and SI.

The proximal step is a step on the loss of the task alone, then the exact minimizer of

    penalty(theta) + |theta - theta_half|^2 / (2 h),        h the size of the step

from where that step led. The penalty is separable, so this is a weighted mean of theta_half and the anchor in every
coordinate: whatever the strength, the penalty can't make training diverge, and its gradient never enters momentum. For
the two steps together to rest where loss + penalty is least, h must be how far one unit of steady gradient moves a
parameter: lr, or with heavy-ball momentum lr / (1 - momentum). Adam has no such h; there the gradient of the penalty is
added to that of the loss.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sfao.lab.methods.method import Method, MethodOptions, Training


class PenaltyOptions(MethodOptions):
    strength: float = Field(ge=0, description="The factor on the penalty.")
    step: Literal["proximal", "gradient"] = Field(
        "proximal", description="How to descend on the penalty; adam and adamw need `gradient`."
    )


class PenalizedMethod(Method):
    """Descent on the loss of the task plus 1/2 sum of weight * (theta - anchor)^2 over all parameters.

    Several penalties add up to one, exactly: sum_t w_t (theta - a_t)^2 = W (theta - A)^2 + constant, with W the sum
    of the weights and A the weighted mean of the anchors. However many tasks, two tensors per parameter are kept and,
    for proximal steps, a third with the share of the way to the anchor that one step goes at the current learning rate.
    """

    options: PenaltyOptions
    saved: ClassVar[tuple[str, ...]] = ("weights", "anchors")

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.is_proximal = self.options.step == "proximal"
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.weights: list[Tensor] = []
        self.anchors: list[Tensor] = []
        self._shares: list[Tensor] = []

    @classmethod
    def check_training(cls, training: Training, options: PenaltyOptions) -> None:
        super().check_training(training, options)
        if options.step == "proximal" and not training.is_descent:
            raise ValueError(
                f"`options.step` must be gradient with optimizer {training.optimizer}: a proximal step of {cls.name} "
                "needs one step size for all parameters, got 'proximal'"
            )

    @torch.no_grad()
    def add_penalty(self, weights: Sequence[Tensor]) -> None:
        """Add a penalty anchored where the parameters are now."""
        if not self.weights:
            self.replace_penalty(weights)
            return
        joined = [old + new for old, new in zip(self.weights, weights, strict=True)]
        for anchor, here, new, total in zip(self.anchors, self.parameters, weights, joined, strict=True):
            anchor.lerp_(here, torch.where(total > 0, new / total, 1.0))
        self._set_weights(joined)

    def replace_penalty(self, weights: Sequence[Tensor]) -> None:
        """Replace the penalty by one anchored where the parameters are now."""
        self.anchors = [parameter.detach().clone() for parameter in self.parameters]
        self._set_weights(weights)

    def set_lr(self, lr: float) -> None:
        super().set_lr(lr)
        self._set_weights(self.weights)

    def _set_weights(self, weights: Sequence[Tensor]) -> None:
        self.weights = list(weights)
        if self.is_proximal:
            step = steady_step(self.training, self.optimizer.param_groups[0]["lr"])
            stiffness = [weight * step for weight in self.weights]
            # 1 where the product is beyond the range of floats: x / (1 + x) would be inf / inf.
            self._shares = [torch.where(x.isinf(), 1.0, x / (1 + x)) for x in stiffness]

    @torch.no_grad()
    def update(self, outputs: slice) -> None:
        acts = self.options.strength > 0 and bool(self.weights)
        if acts and not self.is_proximal:
            for parameter, weight, anchor in zip(self.parameters, self.weights, self.anchors, strict=True):
                pull = weight * (parameter - anchor)
                parameter.grad = pull if parameter.grad is None else parameter.grad + pull
        super().update(outputs)
        if acts and self.is_proximal:
            # theta <- theta + h W / (1 + h W) * (A - theta)
            for parameter, share, anchor in zip(self.parameters, self._shares, self.anchors, strict=True):
                parameter.lerp_(anchor, share)

    @property
    def memory_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.weights, *self.anchors, *self._shares))

    def concerns(self) -> list[str]:
        strength, largest = self.options.strength, max((float(weight.max()) for weight in self.weights), default=0.0)
        if strength == 0 or largest == 0:
            reason = "`strength` is 0" if strength == 0 else "no parameter has any importance"
            return [f"{self.name}: {reason}, so the penalty had no effect"]
        stiffness = steady_step(self.training, self.training.lr) * largest
        if self.training.is_descent and stiffness < torch.finfo(self.parameters[0].dtype).eps:
            return [
                f"{self.name}: the penalty had no effect: it is lost in rounding, since step size * largest weight is "
                f"{stiffness:.2g}; `strength` is {strength:g}"
            ]
        return []

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._set_weights(self.weights)


def steady_step(training: Training, lr: float) -> float:
    """Return the distance that one step at this learning rate moves a parameter per unit of a constant gradient."""
    return lr / (1 - training.momentum) if training.momentum_form == "heavy_ball" else lr
