"""SFAO as a torch optimizer: the gate, then a step of gradient descent with momentum."""

from collections.abc import Iterable
from typing import Any, Unpack

from torch import Tensor, nn

from sfao.checks import check_names
from sfao.gating.budget import MemoryPlan
from sfao.gating.decision import Decision
from sfao.gating.options import WHOLE, GateOptions, check_group_names, check_options
from sfao.optim.consolidation import Loss
from sfao.optim.descent import DESCENT_NAMES, Descent, check_descent
from sfao.optim.gated_layers import OPTION_NAMES, GatedLayers
from sfao.optim.layers import Parameters, as_groups
from sfao.optim.planning import planned_options


class SFAO(Descent):
    """Selective Forgetting-Aware Optimization: gradient descent that looks before it steps.

    For every layer, the gradient g is compared with a few remembered directions and accepted, projected off
    all of them, or discarded; the outcome u then moves the parameters::

        m <- momentum * m + (1 - momentum) * u        theta <- (1 - lr * weight_decay) * theta - lr * m

    Until something is remembered this is SGD. At the end of a task call :meth:`consolidate` (or, after any
    backward(), :meth:`remember`). After a step, `.grad` holds u.

    Args:
        params: as for any optimizer. Param groups are layers (see :func:`sfao.layer_groups`); of plain
            parameters, every one is a layer of its own.
        lr: learning rate.
        momentum: of the exponential average above; 0 for none. Its buffer is dropped at a task boundary.
        momentum_form: ``"ema"`` as above, or ``"heavy_ball"``, torch's ``m <- momentum * m + u``.
        weight_decay: decoupled, as above.
        granularity, seed, memory_budget, options: see :class:`sfao.Gate`. The options can be given per
            param group, as can the four arguments before.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        *,
        momentum_form: str = "ema",
        weight_decay: float = 0.0,
        granularity: str = "layer",
        seed: int = 0,
        memory_budget: str | int | None = None,
        **options: Unpack[GateOptions],
    ) -> None:
        check_names(options, OPTION_NAMES, (*DESCENT_NAMES, *WHOLE))
        groups = as_groups(params)
        chosen, plan = planned_options(groups, memory_budget, options)
        self.gate = GatedLayers(granularity, seed, plan)
        super().__init__(groups, lr, momentum, momentum_form=momentum_form, weight_decay=weight_decay, **chosen)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a layer; the memory of the others stays as it is."""
        (group,) = as_groups([param_group], taken=[known["name"] for known in self.param_groups])
        check_group_names(group, (*DESCENT_NAMES, *OPTION_NAMES))
        self.gate.check_group({**self.defaults, **group})
        super().add_param_group(group)
        self.gate.add_group(group)

    def descend(self, sound: Tensor | None = None) -> None:
        """Gate the gradients, then move every parameter along what has become of its own."""
        super().descend(self.gate.apply())

    # -- Memory ----------------------------------------------------------------------------------------

    def remember(self) -> int:
        """Store the directions of the gradients that backward() left; returns how many were stored."""
        return self.gate.remember()

    def consolidate(
        self,
        model: nn.Module,
        batches: Iterable[object],
        loss: Loss | None = None,
        *,
        target: str = "loss",
        per: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Store directions of a finished task and end it: see :meth:`sfao.Gate.consolidate`."""
        stored = self.gate.consolidate(model, batches, loss, target=target, per=per, limit=limit)
        self.drop_momentum()
        return stored

    def end_task(self) -> None:
        """Mark a task boundary without storing anything: momentum starts anew."""
        self.gate.end_task()
        self.drop_momentum()

    @property
    def last_decisions(self) -> dict[str, Decision]:
        """What the last step decided, {layer: decision}; a layer whose gradient was zero is not in it."""
        return self.gate.last_decisions

    @property
    def last_cosines(self) -> dict[str, float]:
        """The largest cosine each layer's gradient had with the directions it was compared with, at the last step."""
        return self.gate.last_cosines

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Decisions so far: {layer: {accept, project, discard, zero}}."""
        return self.gate.counts

    @property
    def memory_bytes(self) -> int:
        """Bytes of directions held now."""
        return self.gate.memory_bytes

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the small matrices beside the directions."""
        return self.gate.workspace_bytes

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """What `memory_budget` picked."""
        return self.gate.memory_plan

    def risk(self) -> float:
        """The interference risk of the last update: see :meth:`sfao.Gate.risk`."""
        return self.gate.risk()

    def kept(self) -> dict[str, float]:
        """How much of each layer's gradient the last update kept: see :meth:`sfao.Gate.kept`."""
        return self.gate.kept()

    # -- State -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "gate": self.gate.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; a RuntimeError, and nothing changed, if it is of another model."""
        if not isinstance(state_dict, dict) or "gate" not in state_dict:
            got = f"keys {list(state_dict)}" if isinstance(state_dict, dict) else type(state_dict).__name__
            raise RuntimeError(f"`state_dict` must come from SFAO, with a key 'gate', got {got}")
        read = self.gate.read_state(state_dict["gate"])
        try:
            self._check_saved(state_dict)
            super().load_state_dict({name: value for name, value in state_dict.items() if name != "gate"})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RuntimeError(f"`state_dict` must be of this optimizer: {error}") from error
        self.gate.adopt(read, self.param_groups)

    def _check_saved(self, state_dict: dict[str, Any]) -> None:
        """Raise a ValueError for saved options that break a rule, or momentum of other shapes."""
        for group in state_dict["param_groups"]:
            check_options(group)
            check_descent(group)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, saved in state_dict["state"].items():
            buffer = saved.get("momentum_buffer")
            if buffer is not None and buffer.shape != parameters[number].shape:
                raise ValueError(f"momentum of shape {tuple(buffer.shape)} for {tuple(parameters[number].shape)}")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "gate": self.gate}
