"""Hooks of an optimizer: a gate or a bound acts around its step, and its memory travels in its `state_dict`."""

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch.optim import Optimizer

#: The key of the memory in the optimizer's `state_dict`.
STATE_KEY = "sfao"
#: The key, in its param groups, of the number of consolidated tasks. It shows that a checkpointer dropped the memory.
TASKS_KEY = "sfao_tasks"
#: The class name of what is attached, by optimizer.
ATTACHED: WeakKeyDictionary[Optimizer, str] = WeakKeyDictionary()


class Attachment:
    """Calls a gate or a bound around every step of an optimizer, until it is removed.

    Args:
        owner: the gate or bound. It has `tasks`, `before_step(optimizer)` and `after_step(optimizer)`, `state_dict()`,
            `parse_state(state)`, which checks a state, and `adopt_state(parsed)`, which continues from it.
        optimizer: any torch optimizer. Only a weak reference is held.
        holds_state: save the owner's memory in this optimizer's `state_dict`.
    """

    def __init__(self, owner: Any, optimizer: Optimizer, *, holds_state: bool = True) -> None:
        self._owner = owner
        self._optimizer = ref(optimizer)
        self._parsed: Any = None
        #: A fused optimizer unscales gradients inside its kernel; hooks must see unscaled, finite ones.
        self._unscales = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
        if self._unscales:
            optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        if holds_state:
            self._handles += [
                optimizer.register_state_dict_post_hook(self._add_state),
                optimizer.register_load_state_dict_pre_hook(self._parse_state),
                optimizer.register_load_state_dict_post_hook(self._adopt_state),
            ]
        ATTACHED[optimizer] = type(owner).__name__

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer; None if it no longer exists."""
        return self._optimizer()

    def remove(self) -> None:
        """Restore the optimizer."""
        for handle in self._handles:
            handle.remove()
        optimizer = self.optimizer
        if optimizer is not None:
            ATTACHED.pop(optimizer, None)
            if self._unscales:
                optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]

    # -- Steps -----------------------------------------------------------------------------------------

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        # Hooks get the arguments of step() with the optimizer itself in front.
        closure: Callable[[], Any] | None = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._owner.before_step(optimizer)
            return None

        def evaluate() -> Any:
            with torch.enable_grad():
                loss = closure()
            self._owner.before_step(optimizer)
            return loss

        return (args[0], *args[2:]), {**kwargs, "closure": evaluate}

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._owner.after_step(optimizer)

    # -- State -----------------------------------------------------------------------------------------

    def _add_state(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        state = self._owner.state_dict()
        groups = [{**group, TASKS_KEY: self._owner.tasks} for group in state_dict["param_groups"]]
        return {**state_dict, "param_groups": groups, STATE_KEY: state}

    def _parse_state(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Check the memory before the optimizer changes."""
        groups = [dict(group) for group in state_dict.get("param_groups", ())]
        tasks = max((int(group.pop(TASKS_KEY, 0)) for group in groups), default=0)
        self._parsed = None
        if STATE_KEY in state_dict:
            self._parsed = self._owner.parse_state(state_dict[STATE_KEY])
        elif tasks != self._owner.tasks:
            raise RuntimeError(
                f"`state_dict` must hold the memory of {tasks} tasks under {STATE_KEY!r}, but the key is missing, and "
                f"this {type(self._owner).__name__} has {self._owner.tasks}; load that memory first, or detach()"
            )
        return {**{key: value for key, value in state_dict.items() if key != STATE_KEY}, "param_groups": groups}

    def _adopt_state(self, optimizer: Optimizer) -> None:
        if self._parsed is not None:
            self._owner.adopt_state(self._parsed)
            self._parsed = None


def check_free(owner: str, attachments: Iterable[Attachment | None]) -> None:
    """Raise a ValueError if a gate or bound is attached to an optimizer that still exists."""
    if any(attachment is not None and attachment.optimizer is not None for attachment in attachments):
        raise ValueError(f"a {owner} must be free to be attached, but this one has an optimizer; detach() it first")


def list_parameters(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of all groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def drop_stale_state(optimizer: Optimizer) -> None:
    """Drop the state of parameters that have left an optimizer: its `state_dict()` would fail."""
    for parameter in optimizer.state.keys() - set(list_parameters(optimizer)):
        del optimizer.state[parameter]


def check_optimizer(optimizer: object, tasks: int) -> None:
    """Raise a ValueError if nothing can be attached to this optimizer.

    Args:
        optimizer: the optimizer.
        tasks: the number of tasks in the memory of what is attached. An optimizer without anything attached ignores
            the memory in a state that it loads, so its number must be the same.
    """
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"`optimizer` must be a torch optimizer, got a {type(optimizer).__name__}")
    kind = type(optimizer).__name__
    if optimizer in ATTACHED:
        raise ValueError(f"`optimizer` can have one Gate or DriftBound, but this {kind} has a {ATTACHED[optimizer]}")
    if callable(getattr(optimizer, "train", None)) and callable(getattr(optimizer, "eval", None)):
        raise ValueError(f"`optimizer` must keep one set of weights, but {kind} swaps them in train() and eval()")
    lost = max((int(group.get(TASKS_KEY, 0)) for group in optimizer.param_groups), default=0)
    if lost not in (0, tasks):
        raise ValueError(
            f"`optimizer` has loaded a state with the memory of {lost} tasks, and nothing was attached to receive it; "
            "make a new optimizer, attach to it, then load the state"
        )
