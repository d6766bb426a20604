"""SFAO as a torch optimizer: the gate, then a step of gradient descent."""

from collections.abc import Callable, Iterable
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sfao.checks import check_names
from sfao.gating.budget import MemoryPlan
from sfao.gating.decision import Decision
from sfao.gating.options import DEFAULTS, GATE_WIDE, GateOptions, check_group_names
from sfao.optim._books import Momentum, change_books
from sfao.optim._consolidation.batches import Request
from sfao.optim._consolidation.objectives import Loss, Objective
from sfao.optim._gate_state import OLD_OPTIONS, check_saved_options, describe, read_state, write_state
from sfao.optim._growth import grow_state
from sfao.optim._planning import check_new_group, name_memory, plan_options
from sfao.optim._sharding.checks import find_group_shards
from sfao.optim._sharding.state import place_state
from sfao.optim.descent import (
    ADDED_SETTINGS,
    DESCENT_DEFAULTS,
    DESCENT_NAMES,
    REFUSED,
    Descent,
    check_saved_descent,
    evaluate,
    read_rate,
    refuse_arguments,
)
from sfao.optim.gate import OPTION_NAMES, Gate
from sfao.optim.layers import Parameters, as_groups, describe_groups


class SFAO(Descent):
    """Selective Forgetting-Aware Optimization: gradient descent that looks before it steps.

    At the end of a task, :meth:`consolidate` remembers what the inputs of every layer were like. From then on the part
    of a layer's gradient g that would change its outputs for them is taken away, as far as a share of g is left to
    learn by; the outcome u then takes the place of g in a step of :class:`torch.optim.SGD`. Until something is
    remembered, that is SGD with the same arguments. After a step, `.grad` holds u.

    :meth:`paper` is the method as published: g is compared with remembered gradients and accepted, projected off all
    of them, or discarded.

    Args:
        params: as for any optimizer. Param groups are layers (see :func:`sfao.layer_groups`); of plain
            parameters, every one is a layer of its own.
        lr, momentum, dampening, weight_decay, nesterov, maximize: as for :class:`torch.optim.SGD`. Weight decay is
            added after the gate. The momentum of a task ends with it.
        momentum_form: ``"heavy_ball"``, torch's, or ``"ema"``, the paper's ``m <- momentum * m + (1 - momentum) * u``.
        decoupled_weight_decay: shrink the parameters by ``1 - lr * weight_decay``, as the paper does.
        granularity, seed, memory_budget, process_group, sync, options: see :class:`sfao.Gate`. The options can be given
            per param group, as can the arguments before, but not ``foreach``, ``fused`` and ``differentiable``, which
            must be left at torch's defaults.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        momentum_form: str = "heavy_ball",
        decoupled_weight_decay: bool = False,
        granularity: str = "layer",
        seed: int = 0,
        memory_budget: str | int | None = None,
        process_group: Any = None,
        sync: bool = True,
        **options: Unpack[GateOptions],
    ) -> None:
        refuse_arguments({"foreach": foreach, "differentiable": differentiable, "fused": fused})
        check_names(options, OPTION_NAMES, (*DESCENT_NAMES, *GATE_WIDE))
        groups = as_groups(params)
        chosen, plan = plan_options(groups, memory_budget, options)
        self.gate = Gate.without_layers(granularity, seed, plan, chosen, find_group_shards(groups, sync))
        self.gate.process_group, self.gate.sync = process_group, sync
        super().__init__(
            groups,
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
            maximize=maximize,
            momentum_form=momentum_form,
            decoupled_weight_decay=decoupled_weight_decay,
            **chosen,
        )

    @classmethod
    def paper(cls, params: Parameters, lr: float | Tensor = 1e-3, momentum: float = 0.0, **options: Any) -> Self:
        """Return the method of the paper: directions, its thresholds and its momentum; options may override these."""
        published = {"memory": "directions", "momentum_form": "ema", "decoupled_weight_decay": True}
        return cls(params, lr, momentum, **{**published, **options})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a layer; the memory of the others stays as it is."""
        (group,) = as_groups([param_group], taken=[known["name"] for known in self.param_groups])
        group = {**name_memory(group, {"memory": self.defaults["memory"]}), **refuse_arguments(group)}
        check_group_names(group, (*DESCENT_NAMES, *OPTION_NAMES, *REFUSED))
        complete, gate = {**self.defaults, **group}, self.gate
        check_new_group(complete, gate.param_groups, gate.granularity, gate.memory_plan)
        super().add_param_group(group)
        self.gate.add_group(group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Gate the gradients, then move every parameter along what has become of its own."""
        loss = evaluate(closure)
        sound = self.gate.apply()
        self.descend(sound)
        self._note_travel(sound)
        return loss

    def _find_step(self, parameter: Tensor) -> Tensor | None:
        """Return what the last step moved a parameter along, None if it stayed where it was."""
        gradient = parameter.grad
        return None if gradient is None else self.state.get(parameter, {}).get("momentum_buffer", gradient)

    def _note_travel(self, sound: Tensor | None) -> None:
        """Note how far the step has taken the layers that remember their inputs; weight decay is not counted."""
        softening = self.gate.softening
        if softening is None or not softening.layers:
            return
        lengths = softening.lengths
        if any(layer.options["momentum"] for layer in softening.layers):
            lengths = softening.measure_lengths(self._find_step)
        rates = [read_rate(layer.options["lr"]) for layer in softening.layers]
        are_alike = not any(isinstance(rate, Tensor) for rate in rates) and len(set(rates)) == 1
        rate = rates[0] if are_alike else torch.stack([lengths.new_zeros(()) + rate for rate in rates])
        softening.travel(lengths * rate if sound is None else torch.where(sound, lengths * rate, 0.0))

    # -- Memory ----------------------------------------------------------------------------------------

    def remember(self) -> int:
        """Store the directions of the gradients that backward() left; return how many were stored."""
        return self.gate.remember()

    def consolidate(
        self,
        model: nn.Module,
        batches: Iterable[object],
        loss: Loss | None = None,
        *,
        objective: Objective | None = None,
        target: str | None = None,
        per: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Store what must not be lost of a finished task, and end it: see :meth:`sfao.Gate.consolidate`."""
        request = Request(batches, loss, objective, target, per, limit)
        return self.gate.consolidate_task(model, request, Momentum(self.state))

    def end_task(self) -> None:
        """Mark a task boundary without storing anything: momentum starts anew."""
        momentum = Momentum(self.state)

        def end() -> None:
            self.gate.end_task()
            momentum.end()

        change_books(self.gate, end, momentum.undo)

    def register_consolidate_hook(self, hook: Callable[[Gate], object]) -> RemovableHandle:
        """Call `hook(gate)` after every consolidation: see :meth:`sfao.Gate.register_consolidate_hook`."""
        return self.gate.register_consolidate_hook(hook)

    def rebind(self, model: nn.Module) -> list[str]:
        """Follow a model whose layers have grown: see :meth:`sfao.Gate.rebind`. New layers come by `add_param_group`.

        The momentum of a layer that has grown goes on, from zero in its new rows.
        """
        before = {layer.name: list(layer.parameters) for layer in self.gate.layers}
        names = self.gate.rebind(model)
        for layer in self.gate.layers:
            for old, new in zip(before[layer.name], layer.parameters, strict=True):
                if old is not new and old in self.state:
                    self.state[new] = grow_state(self.state.pop(old), new.shape)
        return names

    def trust_memory(self) -> None:
        """Take the weights for those that a loaded memory is of: see :meth:`sfao.Gate.trust_memory`."""
        self.gate.trust_memory()

    def telemetry(self) -> dict[str, float]:
        """Return the numbers to watch a run by: see :meth:`sfao.Gate.telemetry`."""
        return self.gate.telemetry()

    @property
    def last_decisions(self) -> dict[str, Decision]:
        """The decisions of the last step, {layer: decision}; a layer whose gradient was zero is not in it."""
        return self.gate.last_decisions

    @property
    def last_cosines(self) -> dict[str, float]:
        """The largest cosine each layer's gradient had with the directions it was compared with, at the last step."""
        return self.gate.last_cosines

    @property
    def drifts(self) -> dict[str, float]:
        """How far the outputs of each layer had moved at the last step: see :attr:`sfao.Gate.drifts`."""
        return self.gate.drifts

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Decisions so far: {layer: {accept, project, discard, zero}}."""
        return self.gate.counts

    @property
    def memory_bytes(self) -> int:
        """Bytes of axes and directions held now."""
        return self.gate.memory_bytes

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the small matrices beside the directions."""
        return self.gate.workspace_bytes

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """The storage and capacity that `memory_budget` picked."""
        return self.gate.memory_plan

    def risk(self) -> float:
        """Return the interference risk of the last update: see :meth:`sfao.Gate.risk`."""
        return self.gate.risk()

    def kept(self) -> dict[str, float]:
        """Return the share of each layer's gradient that the last update kept: see :meth:`sfao.Gate.kept`."""
        return self.gate.kept()

    def __repr__(self) -> str:
        gate, defaults = self.gate, {"lr": None, **DESCENT_DEFAULTS, **DEFAULTS}
        return describe_groups("SFAO", len(gate.layers), gate.granularity, self.param_groups, defaults)

    # -- State -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "gate": write_state(self.gate)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; a RuntimeError, and nothing changed, if it is of another model."""
        if not isinstance(state_dict, dict) or "gate" not in state_dict:
            got = f"keys {list(state_dict)}" if isinstance(state_dict, dict) else type(state_dict).__name__
            raise RuntimeError(
                f"`state_dict` must come from SFAO, with a key 'gate', got {got}; for torch.distributed.checkpoint see "
                "sfao.integrations.dcp"
            )
        state = read_state(self.gate, state_dict["gate"])
        try:
            old = {**DEFAULTS, **OLD_OPTIONS, **ADDED_SETTINGS}
            names = [{"name": group["name"]} for group in self.param_groups]
            groups = [{**old, **group, **name} for group, name in zip(state_dict["param_groups"], names, strict=True)]
            check_saved_descent(self.param_groups, groups, state_dict["state"])
            check_saved_options(groups, self.gate.granularity)
        except Exception as error:  # whatever a damaged state leads to
            raise RuntimeError(f"`state_dict` must be of this optimizer: {describe(error)}") from error
        before = self.state, self.param_groups

        def load() -> None:
            Descent.load_state_dict(self, {"state": state_dict["state"], "param_groups": groups})
            place_state(self)
            self.gate.adopt_state(state, self.param_groups)

        def undo() -> None:
            self.state, self.param_groups = before

        change_books(self.gate, load, undo)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "gate": self.gate}
