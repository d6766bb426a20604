"""The gate in front of any torch optimizer."""

from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from sfao.checks import check_names
from sfao.gating.decision import Decision
from sfao.gating.options import WHOLE, GateOptions, check_group_names, check_options
from sfao.optim.device_path import is_capturing
from sfao.optim.gated_layers import OPTION_NAMES, GatedLayers
from sfao.optim.layers import Parameters, as_groups
from sfao.optim.planning import planned_options


class Gate(GatedLayers):
    """Gates gradients by their cosine with remembered directions.

    Used through :class:`sfao.SFAO`, or attached to any other optimizer::

        gate = Gate(layer_groups(model), accept_above=0.6).attach(torch.optim.AdamW(model.parameters()))

    Args:
        params: param groups (one layer each, see :func:`sfao.layer_groups`) or parameters (one layer each).
            A group may override any of the options below.
        granularity: ``"layer"``, or ``"global"`` to join all layers into one.
        seed: of the generators that draw samples and evictions; torch's own are never used.
        memory_budget: how many bytes of directions may be held (``"64MiB"``). Picks ``storage``, ``rank``,
            ``memory_dtype`` and, where ``capacity`` directions do not fit, a smaller capacity:
            see :attr:`memory_plan`.

    Options, all of them per group:
        accept_above: accept when the largest sampled cosine is above (0.85). -1 always accepts.
        discard_below: discard when it is not above this (-1e-4). -1 never discards, 1 always does.
        samples: directions compared with at each step, drawn without replacement (10).
        cosine: ``"signed"``, or ``"absolute"`` as in the paper's released code.
        strict: accept only when the smallest sampled cosine is not negative either (False).
        projection: off the ``"span"``, onto the ``"cone"`` of steps that increase no remembered loss, or
            ``"sequential"``, the released code's subtraction of one direction after the other.
        capacity: directions held per layer (200).
        admit_below: store a direction only if its largest cosine with the memory is below (1: store all).
        min_norm: never store gradients shorter than this (0).
        eviction: ``"balanced"`` (equal shares of past tasks), ``"fifo"`` or ``"reservoir"``.
        storage: ``"dense"`` rows, or ``"factored"`` matrices of rank ``rank`` (1).
        memory_dtype: ``"float32"`` or ``"bfloat16"``.
    """

    def __init__(
        self,
        params: Parameters,
        *,
        granularity: str = "layer",
        seed: int = 0,
        memory_budget: str | int | None = None,
        **options: Unpack[GateOptions],
    ) -> None:
        check_names(options, OPTION_NAMES, WHOLE)
        groups = as_groups(params)
        if not groups:
            raise ValueError("`params` must hold at least one parameter, got none")
        chosen, plan = planned_options(groups, memory_budget, options)
        super().__init__(granularity, seed, plan)
        self._handles: list[RemovableHandle] = []
        self._hidden: dict[Tensor, Tensor] = {}
        self._unscaling: Optimizer | None = None
        self.defaults = chosen
        for group in groups:
            check_group_names(group, OPTION_NAMES)
            self.add_group({**chosen, **group})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a layer; the memory of the others stays as it is."""
        (group,) = as_groups([param_group], taken=[known["name"] for known in self.param_groups])
        check_group_names(group, OPTION_NAMES)
        self.add_group({**self.defaults, **group})

    def attach(self, optimizer: Optimizer) -> "Gate":
        """Gate every step() of this optimizer from now on; returns the gate.

        A layer that is discarded does not move at all: the optimizer sees no gradient for it, so neither
        its momentum nor its weight decay acts.
        """
        if self._handles:
            raise ValueError(
                "a gate must be free to be attached, but this one is in front of an optimizer; detach() it first"
            )
        if not isinstance(optimizer, Optimizer):
            raise ValueError(f"`optimizer` must be a torch optimizer, got {type(optimizer).__name__}")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError(
                "`optimizer` must take one gradient a step, got LBFGS, whose history moves discarded layers"
            )
        optimized = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        for layer in self.layers:
            if not optimized.issuperset(layer.parameters):
                raise ValueError(f"`optimizer` must optimize all gated parameters, but not those of {layer.name!r}")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            # A fused optimizer unscales inside its kernel; the gate must see unscaled, finite gradients.
            optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]
            self._unscaling = optimizer
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        return self

    def detach(self) -> None:
        """Leave the optimizer as it was before `attach`."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._unscaling is not None:
            self._unscaling._step_supports_amp_scaling = True  # type: ignore[attr-defined]
            self._unscaling = None

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        arguments = dict(kwargs)
        # Hooks get step()'s arguments with the optimizer itself in front.
        if len(args) > 1:
            arguments["closure"] = args[1]
        closure = arguments.get("closure")
        if closure is None:
            self._apply_and_hide()
            return None
        return args[:1], {**arguments, "closure": self._gated_closure(closure)}

    def _gated_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def gated() -> Any:
            with torch.enable_grad():
                loss = closure()
            self._apply_and_hide()
            return loss

        return gated

    def _apply_and_hide(self) -> None:
        if is_capturing():
            raise RuntimeError(
                "a step with a Gate attached cannot be captured in a CUDA graph: the gate reads at every step which "
                "layers it discards; a step of sfao.SFAO can"
            )
        self._hidden = {}  # of a step that failed, or of an earlier call of the closure
        self.apply()
        for layer in self.layers:
            if self.last_decisions.get(layer.name) is Decision.DISCARD:
                for parameter in layer.parameters:
                    if parameter.grad is not None:
                        self._hidden[parameter], parameter.grad = parameter.grad, None

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for parameter, gradient in self._hidden.items():
            if parameter.grad is None:
                parameter.grad = gradient
        self._hidden = {}

    def state_dict(self) -> dict[str, Any]:
        """Memories, counts, generators and options, in plain containers and tensors."""
        options = [{name: group[name] for name in OPTION_NAMES} for group in self.param_groups]
        return {**super().state_dict(), "options": options}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; a RuntimeError, and nothing changed, if it is of another model."""
        read = self.read_state(state_dict)
        try:
            groups = [{**group, **saved} for group, saved in zip(self.param_groups, state_dict["options"], strict=True)]
            for group in groups:
                check_options(group)
        except (KeyError, TypeError, ValueError) as error:
            raise RuntimeError(f"`state_dict` must hold the options of a gate: {error}") from error
        self.adopt(read, groups)

    def __getstate__(self) -> dict[str, Any]:
        """A copy or a pickle of the gate is attached to no optimizer."""
        return {**super().__getstate__(), "_handles": [], "_hidden": {}, "_unscaling": None}
