"""Gradient descent with momentum and decoupled weight decay: the step that every method ends in."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from sfao.checks import check_at_least_zero, check_choice

MOMENTUM_FORMS = ("ema", "heavy_ball")
DESCENT_NAMES = ("lr", "momentum", "momentum_form", "weight_decay")


class Descent(Optimizer):
    """theta <- (1 - lr * weight_decay) * theta - lr * m, with m the gradient or its momentum.

    ``momentum_form="ema"`` is the paper's ``m <- momentum * m + (1 - momentum) * g`` from zero,
    ``"heavy_ball"`` is torch's ``m <- momentum * m + g``; without momentum and decay this is torch's SGD.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        *,
        momentum_form: str = "ema",
        weight_decay: float = 0.0,
        **others: Any,
    ) -> None:
        """`others` are defaults of param groups that a subclass adds."""
        descent = {"lr": lr, "momentum": momentum, "momentum_form": momentum_form, "weight_decay": weight_decay}
        super().__init__(params, {**descent, **others})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        check_descent({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.descend()
        return loss

    def descend(self, sound: Tensor | None = None) -> None:
        """Move every parameter along its `.grad`; not at all where `sound`, one flag on the device, is false."""
        for (lr, momentum, form, decay), parameters in self._alike().items():
            steps = [parameter.grad for parameter in parameters if parameter.grad is not None]
            if momentum:
                steps = self._averaged(parameters, steps, momentum, form, sound)
            if decay:
                torch._foreach_mul_(parameters, _unless(sound, 1 - lr * decay))
            if isinstance(lr, Tensor):
                torch._foreach_sub_(parameters, torch._foreach_mul(steps, lr))
            else:
                torch._foreach_add_(parameters, steps, alpha=-lr)

    def _alike(self) -> dict[tuple[float | Tensor, float, str, float], list[Tensor]]:
        """The parameters that have gradients, by learning rate, momentum, its form, and decay."""
        alike: dict[tuple[float | Tensor, float, str, float], list[Tensor]] = {}
        for group in self.param_groups:
            key = (_rate(group["lr"]), group["momentum"], group["momentum_form"], group["weight_decay"])
            alike.setdefault(key, []).extend(parameter for parameter in group["params"] if parameter.grad is not None)
        return {key: parameters for key, parameters in alike.items() if parameters}

    def _averaged(
        self, parameters: list[Tensor], updates: list[Tensor], beta: float, form: str, sound: Tensor | None
    ) -> list[Tensor]:
        """The momentum of the parameters after these updates."""
        buffers = [self._buffer(parameter) for parameter in parameters]
        torch._foreach_mul_(buffers, _unless(sound, beta))
        torch._foreach_add_(buffers, updates, alpha=1 - beta if form == "ema" else 1)
        return buffers if sound is None else list(torch._foreach_mul(buffers, sound.float()))

    def _buffer(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum_buffer"]
        return buffer

    def drop_momentum(self) -> None:
        """Let momentum start anew, as at a task boundary."""
        for state in self.state.values():
            state.pop("momentum_buffer", None)


def _rate(rate: float | Tensor) -> float | Tensor:
    """A number, or what is on a device and stays there: a graph that was captured reads it at every replay."""
    return rate if isinstance(rate, Tensor) and rate.device.type != "cpu" else float(rate)


def _unless(sound: Tensor | None, factor: float | Tensor) -> Any:
    """The factor, or 1 where a step must change nothing."""
    return factor if sound is None else torch.where(sound, factor, 1.0)


def check_descent(group: dict[str, Any]) -> None:
    rate = group["lr"]
    check_at_least_zero("lr", rate.item() if isinstance(rate, Tensor) else rate)  # torch allows tensors here
    for name in ("weight_decay", "momentum"):
        check_at_least_zero(name, group[name])
    if group["momentum"] >= 1:
        raise ValueError(f"`momentum` must be in [0, 1), got {group['momentum']}")
    check_choice("momentum_form", group["momentum_form"], MOMENTUM_FORMS)
