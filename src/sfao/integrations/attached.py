"""The gate or bound of an optimizer: found, made, or carried over from the optimizer of the task before."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from sfao.attachment import Attachment
from sfao.batches import Objective
from sfao.drift_bound import DriftBound
from sfao.gate import Gate
from sfao.layers import layer_groups
from sfao.optimizer import SFAO

Attached = Gate | DriftBound


def unwrap(optimizer: Any) -> Any:
    """Return the torch optimizer inside the wrappers of trainers."""
    inner = getattr(optimizer, "optimizer", None)
    return unwrap(inner) if isinstance(inner, Optimizer) else optimizer


def find_attached(optimizer: Any) -> Any:
    """Return the gate or bound of an optimizer, None if there is none."""
    optimizer = unwrap(optimizer)
    if isinstance(optimizer, SFAO):
        return optimizer.gate
    hooks = getattr(optimizer, "_optimizer_step_pre_hooks", {}).values()
    owners = (getattr(hook, "__self__", None) for hook in hooks)
    return next((owner._owner for owner in owners if isinstance(owner, Attachment)), None)


def consolidate_task(
    optimizer: Any, model: nn.Module, batches: Iterable[object], objective: Objective, limit: int | None
) -> None:
    """Consolidate a task with the gate or bound of an optimizer; SFAO starts its momentum again, too."""
    inner = unwrap(optimizer)
    attached = inner if isinstance(inner, SFAO) else find_attached(inner)
    if attached is None:
        raise ValueError("only an optimizer with a Gate or DriftBound can consolidate, but this one has lost its own")
    if isinstance(attached, DriftBound):
        attached.consolidate(batches, objective=objective)
    else:
        attached.consolidate(batches, objective=objective, model=model, limit=limit)


def check_arguments(kind: type[Attached], attached: object, options: Mapping[str, Any], limit: int | None) -> None:
    """Raise a ValueError for an object of another class, options beside an object, or a limit for a bound."""
    if attached is not None and not isinstance(attached, kind):
        raise ValueError(f"a {kind.__name__} was expected, got a {type(attached).__name__}")
    if attached is not None and options:
        raise ValueError(f"options are for a new {kind.__name__}, but one is given too, got {', '.join(options)}")
    if limit is not None and kind is DriftBound:
        raise ValueError(f"`limit` is for gates; a DriftBound has `examples`, got limit={limit}")


def select_groups(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the layers of a model with those of their parameters that the optimizer optimizes."""
    optimized = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    groups = [
        {**group, "params": [parameter for parameter in group["params"] if parameter in optimized]}
        for group in layer_groups(model)
    ]
    return [group for group in groups if group["params"]]


def attach(
    kind: type[Attached], attached: Any, optimizer: Optimizer, model: nn.Module, options: Mapping[str, Any]
) -> Any:
    """Return the gate or bound of this optimizer with the memory of `attached`, the one of the tasks before.

    Without `attached`, it is the optimizer's own or a new one of this `kind` with these `options`.
    """
    present = find_attached(optimizer)
    if attached is None and present is None:
        target = model if kind is DriftBound else select_groups(model, optimizer)
        return kind(target, **options).attach(optimizer)  # type: ignore[arg-type]
    if attached is None or present is attached:
        if present is attached:
            (optimizer if isinstance(optimizer, SFAO) else attached).rebind(model)
        return present
    if present is None:
        return move(attached, optimizer, model)
    if present.tasks:
        raise ValueError(
            f"an optimizer must have one memory, but this one comes with a {type(present).__name__} that has its own; "
            "make the optimizer without one, or start with a new callback"
        )
    attached.rebind(model)
    present.load_state_dict(attached.state_dict())
    return present


def move(attached: Any, optimizer: Optimizer, model: nn.Module) -> Any:
    """Attach the gate or bound of an earlier optimizer to this one.

    A gate that covered all parameters of the earlier one covers all parameters of this one.
    """
    covered_all = isinstance(attached, Gate) and attached.covers_all
    attached.detach()
    attached.rebind(model)
    if covered_all:
        gated = {parameter for layer in attached.layers for parameter in layer.parameters}
        for group in select_groups(model, optimizer):
            new = [parameter for parameter in group["params"] if parameter not in gated]
            if new:
                attached.add_param_group({**group, "params": new})
    return attached.attach(optimizer)
