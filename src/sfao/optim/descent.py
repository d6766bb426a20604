"""Gradient descent as torch's SGD does it, and as the paper writes it: the step that every method ends in."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from sfao.checks import check_at_least_zero, check_choice, is_number
from sfao.gating._state_checks import check_tensor
from sfao.optim._sharding.shards import is_sharded, localise, place_like

MOMENTUM_FORMS = ("heavy_ball", "ema")


class Descent(Optimizer):
    """torch's SGD over all param groups at once, with the paper's momentum and weight decay as options.

    With the defaults of the last two arguments every step is that of :class:`torch.optim.SGD`.

    Args:
        momentum_form: ``"heavy_ball"`` as in torch, ``m <- momentum * m + (1 - dampening) * g`` from the first
            gradient on, or ``"ema"`` as in the paper, ``m <- momentum * m + (1 - momentum) * g`` from zero on.
        decoupled_weight_decay: shrink the parameters by ``1 - lr * weight_decay``, as the paper does, instead of adding
            ``weight_decay`` times the parameters to the gradient.
    """

    #: True if ranks hold some parameters in shards: each then moves what it holds.
    _has_shards = False

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        momentum_form: str = "heavy_ball",
        decoupled_weight_decay: bool = False,
        **others: Any,
    ) -> None:
        """`others` are defaults of param groups that a subclass adds."""
        settings = DescentSettings(
            lr, momentum, dampening, weight_decay, nesterov, maximize, momentum_form, decoupled_weight_decay
        )
        super().__init__(params, {**settings._asdict(), **others})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        check_descent({**self.defaults, **param_group})
        super().add_param_group(param_group)
        self._has_shards = self._has_shards or any(map(is_sharded, self.param_groups[-1]["params"]))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; settings that did not exist then have the values that held."""
        groups = [{**ADDED_SETTINGS, **group} for group in state_dict["param_groups"]]
        super().load_state_dict({**state_dict, "param_groups": groups})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = evaluate(closure)
        self.descend()
        return loss

    def descend(self, sound: Tensor | None = None) -> None:
        """Move every parameter along its `.grad`; not at all where `sound`, a flag on the device, is false."""
        for settings, parameters in self._group_alike().items():
            steps = [parameter.grad for parameter in parameters if parameter.grad is not None]
            own = parameters
            if self._has_shards:
                steps, own = [localise(step) for step in steps], [localise(parameter) for parameter in parameters]
            if settings.maximize:
                steps = list(torch._foreach_neg(steps))
            if settings.weight_decay and not settings.decoupled_weight_decay:
                steps = _add_decay(steps, own, settings.weight_decay, sound)
            if settings.momentum:
                steps = self._add_momentum(steps, parameters, settings, sound)
            if settings.weight_decay and settings.decoupled_weight_decay:
                torch._foreach_mul_(own, _if_sound(sound, 1 - settings.lr * settings.weight_decay, 1.0))
            if isinstance(settings.lr, Tensor):
                torch._foreach_sub_(own, torch._foreach_mul(steps, settings.lr))
            else:
                torch._foreach_add_(own, steps, alpha=-settings.lr)

    def _group_alike(self) -> "dict[DescentSettings, list[Tensor]]":
        """Return the parameters that have gradients, by their settings: those of many groups move in one pass."""
        alike: dict[DescentSettings, list[Tensor]] = {}
        for group in self.param_groups:
            settings = DescentSettings(read_rate(group["lr"]), *[group[name] for name in DESCENT_NAMES[1:]])
            alike.setdefault(settings, []).extend(p for p in group["params"] if p.grad is not None)
        return {settings: parameters for settings, parameters in alike.items() if parameters}

    def _add_momentum(
        self, steps: list[Tensor], parameters: list[Tensor], settings: "DescentSettings", sound: Tensor | None
    ) -> list[Tensor]:
        is_average = settings.momentum_form == "ema"
        known = []
        for number, parameter in enumerate(parameters):
            if self.state[parameter].get("momentum_buffer") is not None:
                known.append(number)
            else:
                start = steps[number] * (1 - settings.momentum) if is_average else steps[number].clone()
                self.state[parameter]["momentum_buffer"] = place_like(start, parameter) if self._has_shards else start
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        if self._has_shards:
            buffers = [localise(buffer) for buffer in buffers]
        if known:
            old, new = [buffers[number] for number in known], [steps[number] for number in known]
            torch._foreach_mul_(old, _if_sound(sound, settings.momentum, 1.0))
            torch._foreach_add_(old, new, alpha=1 - (settings.momentum if is_average else settings.dampening))
        if settings.nesterov:
            buffers = list(torch._foreach_add(steps, buffers, alpha=settings.momentum))
        return buffers if sound is None else list(torch._foreach_mul(buffers, sound.float()))

    def drop_momentum(self) -> None:
        """Let momentum start anew, as at a task boundary."""
        for state in self.state.values():
            state.pop("momentum_buffer", None)


class DescentSettings(NamedTuple):
    """The settings of a param group."""

    lr: float | Tensor
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    maximize: bool = False
    momentum_form: str = "heavy_ball"
    decoupled_weight_decay: bool = False


DESCENT_NAMES = DescentSettings._fields
DESCENT_DEFAULTS = DescentSettings._field_defaults
#: Settings that states from before them lack, with the values that held then.
ADDED_SETTINGS = {"dampening": 0.0, "nesterov": False, "maximize": False, "decoupled_weight_decay": True}
#: Arguments of torch's SGD about how a step is computed: the value that cannot be had, with the reason.
REFUSED = {
    "foreach": (False, "all parameters always move in one pass"),
    "fused": (True, "the gate stands between the gradient and the step, and a fused kernel knows no gate"),
    "differentiable": (True, "the gate's decisions have no gradient"),
}


def refuse_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without those of torch's SGD that have no effect; a ValueError for those it cannot have."""
    for name, (refused, reason) in REFUSED.items():
        value = given.get(name)
        if value is refused:
            raise ValueError(f"`{name}` must not be {refused}: {reason}")
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"`{name}` must be True, False or None, got {value!r}")
    return {name: value for name, value in given.items() if name not in REFUSED}


def evaluate(closure: Callable[[], Any] | None) -> Any:
    """Return the loss of a closure, which computes gradients; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def _add_decay(
    steps: list[Tensor], parameters: list[Tensor], weight_decay: float, sound: Tensor | None
) -> list[Tensor]:
    if sound is None:
        return list(torch._foreach_add(steps, parameters, alpha=weight_decay))
    return list(torch._foreach_add(steps, torch._foreach_mul(parameters, _if_sound(sound, weight_decay, 0.0))))


def read_rate(rate: float | Tensor) -> float | Tensor:
    """Return a number, or a tensor on a device, which stays there: a captured graph reads it at every replay."""
    return rate if isinstance(rate, Tensor) and rate.device.type != "cpu" else float(rate)


def _if_sound(sound: Tensor | None, factor: float | Tensor, otherwise: float) -> Any:
    return factor if sound is None else torch.where(sound, factor, otherwise)


def check_saved_descent(
    own: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]], state: Mapping[Any, Mapping[str, Any]]
) -> None:
    """Raise a ValueError that names what is wrong in saved groups, beside one's own, or in their parameters' state."""
    parameters = [parameter for group in own for parameter in group["params"]]
    numbers = [number for group in groups for number in group["params"]]
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in own]:
        raise ValueError("'param_groups' must hold as many parameters as here, but do not")
    if numbers != list(range(len(parameters))):
        raise ValueError(f"'params' must number the parameters of all groups in order, got {numbers[:10]}")
    for group in groups:
        check_descent(group)
    for number, saved in state.items():
        if isinstance(number, bool) or number not in numbers:
            raise ValueError(f"'state' must be of these parameters, got one of number {number!r}")
        buffer = saved.get("momentum_buffer")
        if buffer is not None and not is_sharded(buffer):
            dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
            check_tensor(f"momentum_buffer of parameter {number}", buffer, dtypes, parameters[number].shape)


def check_descent(group: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first setting that breaks its rule."""
    rate = group["lr"]
    if isinstance(rate, Tensor) and rate.numel() != 1:  # torch allows tensors here
        raise ValueError(f"`lr` must be one number, got a tensor of shape {tuple(rate.shape)}")
    check_at_least_zero("lr", rate.item() if isinstance(rate, Tensor) else rate)
    for name in ("weight_decay", "momentum"):
        check_at_least_zero(name, group[name])
    if group["momentum"] >= 1:
        raise ValueError(f"`momentum` must be in [0, 1), got {group['momentum']}")
    if not (is_number(group["dampening"]) and isfinite(group["dampening"])):
        raise ValueError(f"`dampening` must be a finite number, got {group['dampening']!r}")
    check_choice("momentum_form", group["momentum_form"], MOMENTUM_FORMS)
    for name in ("nesterov", "maximize", "decoupled_weight_decay"):
        if not isinstance(group[name], bool):
            raise ValueError(f"`{name}` must be True or False, got {group[name]!r}")
    if group["nesterov"] and (group["momentum"] == 0 or group["dampening"] != 0):
        raise ValueError(
            f"`nesterov` needs momentum and no dampening, got momentum {group['momentum']} "
            f"and dampening {group['dampening']}"
        )
    if group["momentum_form"] == "ema" and (group["nesterov"] or group["dampening"] != 0):
        raise ValueError('`momentum_form="ema"` goes with neither `nesterov` nor `dampening`, got one of them')
