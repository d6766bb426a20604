"""A gate in front of any torch optimizer, through the hooks of its step."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from sfao.gating.decision import Decision
from sfao.optim import _gate_path as gate_path
from sfao.optim._softening import Softening

if TYPE_CHECKING:
    from sfao.optim.gate import Gate


class Attachment:
    """Gates every step() of an optimizer until it is removed.

    Directions gate gradients before the step; what the step adds to parameters is softened after it. A layer that is
    discarded does not move at all: the optimizer sees no gradient for it, so neither its momentum nor
    its weight decay acts.
    """

    def __init__(self, gate: "Gate", optimizer: Optimizer) -> None:
        check_optimizer(gate, optimizer)
        self._gate = gate
        self._optimizer = optimizer
        self._hidden: dict[Tensor, Tensor] = {}
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
        ]

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        for handle in self._handles:
            handle.remove()
        if self._unscales:
            self._optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
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
        self._hidden = {}  # of a step that failed, or of an earlier call of the closure
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
        self._hidden = {}
        self._soften()

    @torch.no_grad()
    def _soften(self) -> None:
        """Soften what the step has added to the parameters."""
        before, self._before = self._before, {}
        if self._softening is None or not before:
            return
        updates = {parameter: parameter - old for parameter, old in before.items()}
        for parameter, old in before.items():
            parameter.copy_(old)
        self._gate.soften_updates(self._softening, updates)
        for parameter, update in updates.items():
            parameter.add_(update)


def check_optimizer(gate: "Gate", optimizer: object) -> None:
    """Raise a ValueError if the gate cannot stand in front of this optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"`optimizer` must be a torch optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("`optimizer` must take one gradient a step, got LBFGS, whose history moves discarded layers")
    optimized = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    for layer in gate.layers:
        if not optimized.issuperset(layer.parameters):
            raise ValueError(f"`optimizer` must optimize all gated parameters, but not those of {layer.name!r}")
