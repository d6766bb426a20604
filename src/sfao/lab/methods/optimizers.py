"""The optimizers behind every method: torch's SGD with the paper's momentum and weight decay, Adam and AdamW."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

from sfao.checks import check_at_least_zero, check_choice

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")
MOMENTUM_FORMS = ("heavy_ball", "ema")
#: The momentum of `momentum` where the setting is 0.
USUAL_MOMENTUM = 0.9


class Descent(SGD):
    """torch's SGD, with weight decay that shrinks the parameters by ``1 - lr * weight_decay`` as the paper does.

    Args:
        params: parameters or param groups.
        lr: learning rate.
        momentum: in [0, 1).
        momentum_form: ``"heavy_ball"`` as in torch, ``m <- momentum * m + g`` from the first gradient on, or ``"ema"``
            as in the paper, ``m <- momentum * m + (1 - momentum) * g`` from zero on.
        weight_decay: see above.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.0,
        momentum_form: str = MOMENTUM_FORMS[0],
        weight_decay: float = 0.0,
    ) -> None:
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            check_at_least_zero(name, value)
        if momentum >= 1:
            raise ValueError(f"`momentum` must be in [0, 1), got {momentum}")
        check_choice("momentum_form", momentum_form, MOMENTUM_FORMS)
        # An average from zero on is torch's momentum with dampening and a buffer of zeros.
        super().__init__(params, lr, momentum, dampening=momentum if momentum_form == "ema" else 0.0)
        self._decay = weight_decay
        # A hook instead of an override: step() of a subclass that calls torch's would run the hooks of others twice.
        self.register_step_pre_hook(_prepare_step)

    @torch.no_grad()
    def _prepare(self) -> None:
        """Shrink the parameters, and make momentum buffers where torch would start with the gradient."""
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            if self._decay and moved:
                torch._foreach_mul_(moved, 1 - group["lr"] * self._decay)
            if group["dampening"]:
                for parameter in moved:
                    state = self.state[parameter]
                    if state.get("momentum_buffer") is None:
                        state["momentum_buffer"] = torch.zeros_like(parameter)


def _prepare_step(optimizer: Any, args: object, kwargs: object) -> None:
    optimizer._prepare()


def complete_momentum(optimizer: str, momentum: float) -> float:
    """Return the momentum that an optimizer is used with: `momentum` has 0.9 unless the setting says otherwise."""
    return USUAL_MOMENTUM if optimizer == "momentum" and momentum == 0 else momentum


def check_momentum(optimizer: str, momentum: float, momentum_form: str) -> None:
    """Raise a ValueError for settings of momentum that an optimizer doesn't have."""
    check_choice("optimizer", optimizer, OPTIMIZERS)
    if optimizer in ("adam", "adamw") and momentum:
        raise ValueError(f"`momentum` must be 0 with optimizer {optimizer}, which has its own, got {momentum}")
    if optimizer == "momentum" and momentum_form != "heavy_ball":
        raise ValueError(f"`momentum_form` must be heavy_ball with optimizer momentum, got {momentum_form!r}")


def make_optimizer(
    parameters: Iterable[Any], optimizer: str, lr: float, momentum: float, momentum_form: str, weight_decay: float
) -> Optimizer:
    """Return an optimizer by name. Adam adds weight decay to the gradient; the others shrink the parameters."""
    if optimizer in ("adam", "adamw"):
        return (Adam if optimizer == "adam" else AdamW)(parameters, lr=lr, weight_decay=weight_decay)
    return Descent(parameters, lr, momentum, momentum_form, weight_decay)
