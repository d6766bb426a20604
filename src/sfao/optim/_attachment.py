"""A gate in front of any torch optimizer, through the hooks of its step."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

import torch
from torch import Tensor
from torch.optim import Optimizer

from sfao.gating.decision import Decision
from sfao.optim import _gate_path as gate_path
from sfao.optim._books import change_books
from sfao.optim._gate_state import GateState
from sfao.optim._guarded_step import guard_step, release_step
from sfao.optim._membership import check_members, find_ungated, list_members
from sfao.optim._sharding.state import place_state
from sfao.optim._softening import Softening

if TYPE_CHECKING:
    from sfao.optim.gate import Gate

#: The key of the gate's state in the state_dict() of the optimizer that it stands in front of.
STATE_KEY = "sfao_gate"
#: The key, in the groups of that state_dict(), of how many tasks the gate remembers: whatever keeps the groups alone,
#: as torch.distributed.checkpoint's helpers do, is noticed when it is loaded.
TASKS_KEY = "sfao_tasks"
#: Optimizers with a gate in front of them.
GATED: WeakSet[Optimizer] = WeakSet()


class Attachment:
    """Gates every step() of an optimizer until it is removed.

    Directions gate gradients before the step; what the step adds to parameters is softened after it. A layer that is
    discarded does not move at all: the optimizer sees no gradient for it, so neither its momentum nor
    its weight decay acts. The state of the gate is part of the optimizer's: whoever saves the one saves the other.
    """

    def __init__(self, gate: "Gate", optimizer: Optimizer) -> None:
        check_optimizer([(layer.name, layer.parameters) for layer in gate.layers], optimizer)
        check_single(gate, optimizer)
        self._gate = gate
        #: Weak: an optimizer that nobody holds any more is gone, and the gate free for another.
        self._optimizer = ref(optimizer)
        #: Parameters that were ungated from the start: on purpose.
        self.free = set(find_ungated(gate.layers, self.members))
        self._checked: list[Tensor] = []
        self._loaded: tuple[GateState, list[dict[str, Any]]] | None = None
        #: The optimizer's own state and groups before another state was loaded.
        self._own_state: tuple[Any, Any] = (None, None)
        self._hidden: dict[Tensor, Tensor] = {}
        #: Gradients that directions may change, each with what it was before.
        self._given: dict[Tensor, tuple[Tensor, Tensor]] = {}
        #: Parameters as they were before a step that will be softened.
        self._before: dict[Tensor, Tensor] = {}
        self._softening: Softening | None = None
        #: A fused optimizer unscales inside its kernel; the gate must see unscaled, finite gradients.
        self._unscales = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
        if self._unscales:
            optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_state_dict_post_hook(self._add_state),
            optimizer.register_load_state_dict_pre_hook(self._read_state),
            optimizer.register_load_state_dict_post_hook(self._adopt_state),
        ]
        self._guarded = guard_step(optimizer, self._undo_step)
        GATED.add(optimizer)

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer, None if it is gone."""
        return self._optimizer()

    @property
    def members(self) -> list[Tensor]:
        """The parameters that the optimizer moves now."""
        optimizer = self.optimizer
        return [] if optimizer is None else list_members(optimizer.param_groups)

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        for handle in self._handles:
            handle.remove()
        optimizer = self.optimizer
        if optimizer is not None:
            GATED.discard(optimizer)
            release_step(optimizer, self._guarded)
            if self._unscales:
                optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]

    # -- State -----------------------------------------------------------------------------------------

    def _add_state(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        groups = [{**group, TASKS_KEY: self._gate.task} for group in state_dict["param_groups"]]
        return {**state_dict, "param_groups": groups, STATE_KEY: self._gate.state_dict()}

    def _read_state(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any] | None:
        """Read the gate's state before the optimizer's is touched."""
        self._loaded, self._own_state = None, (optimizer.state, optimizer.param_groups)
        groups = [dict(group) for group in state_dict.get("param_groups", ())]
        tasks = max((int(group.pop(TASKS_KEY, 0)) for group in groups), default=0)
        if STATE_KEY in state_dict:
            self._loaded = self._gate.read_state_dict(state_dict[STATE_KEY])
            kept = {name: value for name, value in state_dict.items() if name != STATE_KEY}
            return {**kept, "param_groups": groups}
        # A gate that was loaded before, on its own, remembers as much.
        if tasks != self._gate.task or (not tasks and not self._gate.is_empty):
            raise RuntimeError(
                f"`state_dict` must hold the memory of the gate, under {STATE_KEY!r}, of {tasks} tasks where the gate "
                f"has {self._gate.task}; detach() it to load without. For torch.distributed.checkpoint see "
                "sfao.integrations.dcp"
            )
        return {**state_dict, "param_groups": groups}

    def _adopt_state(self, optimizer: Optimizer) -> None:
        loaded, before = self._loaded, self._own_state

        def adopt() -> None:
            place_state(optimizer)
            if loaded is not None:
                self._gate.adopt_state(*loaded)
            self._loaded, self._own_state = None, (None, None)

        def undo() -> None:
            optimizer.state, optimizer.param_groups = before

        change_books(self._gate, adopt, undo)

    # -- Steps -----------------------------------------------------------------------------------------

    def _check_members(self) -> None:
        """Raise a RuntimeError if the optimizer moves others than the parameters that the gate knows."""
        members = self.members
        if len(members) != len(self._checked) or any(a is not b for a, b in zip(members, self._checked, strict=True)):
            check_members(self._gate.layers, members, self.free)
            self._checked = members

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        self._check_members()
        self._softening = self._gate.find_softening()
        softened = [] if self._softening is None else self._softening.layers
        self._before = {p: p.detach().clone() for layer in softened for p in layer.parameters}
        arguments = dict(kwargs)
        # Hooks get step()'s arguments with the optimizer itself in front.
        if len(args) > 1:
            arguments["closure"] = args[1]
        closure = arguments.get("closure")
        if closure is None:
            self._apply_and_hide()
            return None
        return args[:1], {**arguments, "closure": self._gate_closure(closure)}

    def _gate_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate_and_gate() -> Any:
            with torch.enable_grad():
                loss = closure()
            self._apply_and_hide()
            return loss

        return evaluate_and_gate

    def _apply_and_hide(self) -> None:
        gate = self._gate
        if gate.device.type in gate_path.DEVICES and gate_path.is_capturing():
            raise RuntimeError(
                "a step with a Gate attached cannot be captured in a CUDA graph: the gate reads at every step which "
                "layers it discards; a step of sfao.SFAO can"
            )
        self._hidden = {}  # of an earlier call of the closure
        self._given = {
            parameter: (parameter.grad, parameter.grad.clone())
            for layer in gate.layers
            if len(layer.memory)
            for parameter in layer.parameters
            if parameter.grad is not None
        }
        gate.apply()
        for layer in gate.layers:
            if gate.last_decisions.get(layer.name) is Decision.DISCARD:
                for parameter in layer.parameters:
                    if parameter.grad is not None:
                        self._hidden[parameter], parameter.grad = parameter.grad, None

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for parameter, gradient in self._hidden.items():
            if parameter.grad is None:
                parameter.grad = gradient
        if self._softening is not None and self._before:
            self._gate.soften_updates(self._softening, self._before)
            self._gate.note_softened(self._softening)
        self._hidden, self._given, self._before = {}, {}, {}

    def _undo_step(self) -> None:
        """Give gradients back as they were before the gate, and take back what was added without being softened."""
        for parameter, (gradient, before) in self._given.items():
            parameter.grad = gradient
            gradient.copy_(before)
        for parameter, old in self._before.items():
            parameter.detach().copy_(old)
        self._hidden, self._given, self._before = {}, {}, {}


def check_optimizer(layers: Iterable[tuple[str, Sequence[Tensor]]], optimizer: object) -> None:
    """Raise a ValueError if a gate over these layers cannot stand in front of this optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"`optimizer` must be a torch optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("`optimizer` must take one gradient a step, got LBFGS, whose history moves discarded layers")
    optimized = set(list_members(optimizer.param_groups))
    for name, parameters in layers:
        if not optimized.issuperset(parameters):
            raise ValueError(f"`optimizer` must optimize all gated parameters, but not those of {name!r}")


def check_single(gate: "Gate", optimizer: Optimizer) -> None:
    """Raise a ValueError if the optimizer has a gate already."""
    if optimizer in GATED or isinstance(getattr(optimizer, "gate", None), type(gate)):
        name = type(optimizer).__name__
        raise ValueError(f"`optimizer` must have one gate at most, but this {name} has one; detach() that first")
