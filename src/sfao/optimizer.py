"""SFAO, the paper's optimizer: torch's SGD behind the gate."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.sgd import sgd

from sfao.attachment import ATTACHED, STATE_KEY, TASKS_KEY, drop_stale_state
from sfao.gate import Gate, of_gate
from sfao.layers import Parameters, as_groups, layer_groups
from sfao.options import (
    GATE_WIDE,
    OPTIONS,
    SETTINGS,
    GateOptions,
    check_names,
    check_settings,
    complete_group,
    describe,
)
from sfao.state import OLD_STATE, adopt_state, describe_keys
from sfao.step import apply_gate


class SFAO(SGD):
    """Selective Forgetting-Aware Optimization (the paper): SGD whose gradients pass a gate first.

    Until :meth:`consolidate` has stored something, this is SGD with the same arguments. Afterwards each layer's
    gradient is accepted, projected off the stored directions, or discarded: see :class:`sfao.Gate`. The result u takes
    the place of the gradient, in `.grad` too. With the defaults,

        m <- momentum * m + (1 - momentum) * u,    p <- (1 - lr * weight_decay) * p - lr * m.

    Momentum starts again with every task. `consolidate`, `end_task`, `remember`, `telemetry`, `risk`, `kept`, `counts`,
    `last_decisions`, `last_cosines`, `memory_bytes` and `register_consolidate_hook` are those of :class:`sfao.Gate`.

    Args:
        params: a model, with its frozen layers, which may be trained later; or param groups (one layer each, see
            :func:`sfao.layer_groups`), which may override the other arguments; or parameters (one layer each).
        lr, momentum, dampening, weight_decay, nesterov, maximize: as for :class:`torch.optim.SGD`. Weight decay is
            applied after the gate.
        foreach, differentiable, fused: have no effect; the last two can't be True.
        momentum_form: ``"ema"``, the paper's average above, which starts at zero; or ``"heavy_ball"``, torch's.
        decoupled_weight_decay: shrink the parameters as above; or, with False, add ``weight_decay * p`` to u as torch
            does.
        granularity, seed, process_group, sync, options: see :class:`sfao.Gate`.

    Example::

        >>> optimizer = sfao.SFAO(model, lr=0.1)
        >>> for batches in tasks:
        >>>     for inputs, targets in batches:
        >>>         optimizer.zero_grad()
        >>>         loss(model(inputs), targets).backward()
        >>>         optimizer.step()
        >>>     optimizer.consolidate(batches, loss)
    """

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.9,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        momentum_form: str = "ema",
        decoupled_weight_decay: bool = True,
        granularity: str = "layer",
        seed: int = 0,
        process_group: Any = None,
        sync: bool = True,
        **options: Unpack[GateOptions],
    ) -> None:
        values = lr, momentum, dampening, weight_decay, nesterov, maximize, momentum_form, decoupled_weight_decay
        settings = dict(zip(SETTINGS, values, strict=True))
        if fused or differentiable:
            raise ValueError("`fused` and `differentiable` must not be True: the gate acts between gradient and step")
        check_names(options, "SFAO", (*OPTIONS, *SETTINGS, *GATE_WIDE))
        # Layers that are frozen now may be trained later.
        given = layer_groups(params, trainable_only=False) if isinstance(params, nn.Module) else params
        groups = [complete(group, settings, options) for group in as_groups(given)]
        self.gate = Gate(groups, granularity=granularity, seed=seed, process_group=process_group, sync=sync, **options)
        self.gate.model, self.gate.is_used = params if isinstance(params, nn.Module) else None, True
        # The gate's own param groups: an option that is changed there holds from the next step on.
        super().__init__(self.gate.param_groups, lr, momentum)
        self.defaults.update(settings)
        ATTACHED[self] = "Gate"

    @classmethod
    def paper(cls, *args: Any, **kwargs: Any) -> None:
        """Raise an error: since version 0.2, SFAO itself is the paper's method."""
        raise TypeError("SFAO.paper(...) is SFAO(...) since version 0.2")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a layer; the memory of the others stays as it is.

        Args:
            param_group: a dict with parameters under ``"params"``, perhaps a ``"name"`` and options.
        """
        if not any(param_group is known for known in self.gate.param_groups):
            (group,) = as_groups([param_group], self.param_groups)
            settings = {name: self.defaults[name] for name in SETTINGS}
            self.gate.add_param_group(complete(group, settings, self.gate.options))
            param_group = self.gate.param_groups[-1]
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Gate the gradients, then take a step of SGD.

        Args:
            closure: evaluates the model again and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        apply_gate(self.gate, self.param_groups)
        alike: dict[tuple[Any, ...], list[Tensor]] = {}
        for group in self.param_groups:
            settings = tuple([group[name] for name in SETTINGS])
            alike.setdefault(settings, []).extend([p for p in group["params"] if p.grad is not None])
        for settings, parameters in alike.items():
            if parameters:
                self._descend(parameters, *settings)
        return loss

    def _descend(self, parameters: list[Tensor], *settings: Any) -> None:
        """Take a step of torch's SGD with parameters that share the values of `SETTINGS`.

        The average is SGD's momentum with dampening = momentum and a zero buffer.
        """
        lr, momentum, dampening, weight_decay, nesterov, maximize, momentum_form, is_decoupled = settings
        buffers = [self.state[parameter].get("momentum_buffer") if momentum else None for parameter in parameters]
        if weight_decay and is_decoupled:
            torch._foreach_mul_(parameters, 1 - float(lr) * weight_decay)
            weight_decay = 0.0
        if momentum and momentum_form == "ema":
            dampening = momentum
            pairs = zip(parameters, buffers, strict=True)
            buffers = [torch.zeros_like(parameter) if buffer is None else buffer for parameter, buffer in pairs]
        sgd(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            buffers,
            # In one pass, as on a GPU: torch's loop rounds factors to bfloat16. With nesterov it would change `.grad`.
            foreach=None if nesterov or self.gate.is_sharded else True,
            weight_decay=weight_decay,
            momentum=momentum,
            lr=lr,
            dampening=dampening,
            nesterov=nesterov,
            maximize=maximize,
        )
        if momentum:
            for parameter, buffer in zip(parameters, buffers, strict=True):
                self.state[parameter]["momentum_buffer"] = buffer

    # -- Memory ----------------------------------------------------------------------------------------

    consolidate = of_gate(Gate.consolidate, ends_task=True)
    end_task = of_gate(Gate.end_task, ends_task=True)

    def rebind(self, model: nn.Module) -> list[str]:
        """Follow a model in which modules were replaced: see :meth:`sfao.Gate.rebind`. Momentum is zero in new rows."""
        before = {layer.name: list(layer.parameters) for layer in self.gate.layers}
        names = self.gate.rebind(model)
        for layer in self.gate.layers:
            for old, new in zip(before[layer.name], layer.parameters, strict=True):
                buffer = self.state.pop(old, {}).get("momentum_buffer") if old is not new else None
                if buffer is not None:
                    grown = self.state[new]["momentum_buffer"] = buffer.new_zeros(new.shape)
                    grown[: len(buffer)] = buffer
        drop_stale_state(self)
        return names

    remember = of_gate(Gate.remember)
    register_consolidate_hook = of_gate(Gate.register_consolidate_hook)
    telemetry = of_gate(Gate.telemetry)
    risk = of_gate(Gate.risk)
    kept = of_gate(Gate.kept)
    counts = property(attrgetter("gate.counts"), doc=Gate.counts.__doc__)
    last_decisions = property(attrgetter("gate.last_decisions"), doc=Gate.last_decisions.__doc__)
    last_cosines = property(attrgetter("gate.last_cosines"), doc=Gate.last_cosines.__doc__)
    memory_bytes = property(attrgetter("gate.memory_bytes"), doc=Gate.memory_bytes.__doc__)

    def __repr__(self) -> str:
        return describe("SFAO", self.gate, self.param_groups)

    # -- State -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state of SGD, and the memory under ``"sfao"``."""
        state = super().state_dict()
        groups = [{**group, TASKS_KEY: self.gate.tasks} for group in state["param_groups"]]
        return {**state, "param_groups": groups, STATE_KEY: self.gate.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state; raise a RuntimeError, and change nothing, if it belongs to another model."""
        if not isinstance(state_dict, dict) or STATE_KEY not in state_dict:
            if isinstance(state_dict, dict) and "gate" in state_dict:
                raise RuntimeError(OLD_STATE)
            raise RuntimeError(
                f"`state_dict` must come from SFAO, with a key {STATE_KEY!r}, got {describe_keys(state_dict)}; for "
                "torch.distributed.checkpoint see sfao.integrations.dcp"
            )
        parsed = self.gate.parse_state(state_dict[STATE_KEY])
        names, saved = [group["name"] for group in self.param_groups], state_dict["param_groups"]
        if len(saved) != len(names) or not all(group.keys() >= set(SETTINGS) for group in saved):
            raise RuntimeError("`state_dict` must come from SFAO, got that of another optimizer with a memory")
        groups = [{**group, "name": name} for group, name in zip(saved, names, strict=True)]
        for group in groups:
            group.pop(TASKS_KEY, None)
        super().load_state_dict({"state": state_dict["state"], "param_groups": groups})
        adopt_state(self.gate, parsed, self.param_groups)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "gate": self.gate}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.gate.is_used = True
        ATTACHED[self] = "Gate"


def complete(group: dict[str, Any], settings: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a param group with all settings and options, checked."""
    whole = {**settings, **group}
    complete_group(whole, options, "SFAO")
    check_settings(whole)
    return whole
