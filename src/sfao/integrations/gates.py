"""The gate in front of an optimizer: found, made, or carried over from the optimizer of the task before."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from sfao.optim._attachment import Attachment
from sfao.optim._consolidation.objectives import Objective
from sfao.optim.gate import Gate
from sfao.optim.layers import layer_groups
from sfao.optim.sfao import SFAO


def unwrap(optimizer: Any) -> Any:
    """Return the torch optimizer inside what trainers wrap around it."""
    inner = getattr(optimizer, "optimizer", None)
    return unwrap(inner) if isinstance(inner, Optimizer) else optimizer


def find_gate(optimizer: Any) -> Gate | None:
    """Return the gate of an optimizer, None if there is none."""
    optimizer = unwrap(optimizer)
    if isinstance(optimizer, SFAO):
        return optimizer.gate
    hooks = getattr(optimizer, "_optimizer_step_pre_hooks", {}).values()
    owners = (getattr(hook, "__self__", None) for hook in hooks)
    return next((owner._gate for owner in owners if isinstance(owner, Attachment)), None)


def remember_task(
    optimizer: Any, model: nn.Module, batches: Iterable[object], objective: Objective, limit: int | None
) -> None:
    """Let the gate of an optimizer remember a task that has been trained; SFAO starts its momentum anew, too."""
    inner = unwrap(optimizer)
    keeper = inner if isinstance(inner, SFAO) else find_gate(inner)
    if keeper is None:
        raise ValueError("a task can be remembered by an optimizer with a gate, but this one has lost its own")
    keeper.consolidate(model, batches, objective=objective, limit=limit)


def check_one_source(gate: Gate | None, options: Mapping[str, Any]) -> None:
    """Raise a ValueError where both a gate and options of a new one are given."""
    if gate is not None and options:
        raise ValueError(
            f"options are for a new gate, but `gate` is given too, got {', '.join(options)}; leave one out"
        )


def select_groups(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the layers of a model with those of their parameters that the optimizer optimizes."""
    optimized = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    groups = [
        {**group, "params": [parameter for parameter in group["params"] if parameter in optimized]}
        for group in layer_groups(model)
    ]
    return [group for group in groups if group["params"]]


def place_gate(gate: Gate | None, optimizer: Optimizer, model: nn.Module, options: Mapping[str, Any]) -> Gate:
    """Return the gate in front of this optimizer, with what the gate of the tasks before remembers of this model.

    A new one is made of the options where there is none yet; a model that has grown is followed.
    """
    present = find_gate(optimizer)
    if gate is None:
        return present or Gate(select_groups(model, optimizer), **options).attach(optimizer)
    if present is None:
        return move_gate(gate, optimizer, model)
    if present is gate:
        (optimizer if isinstance(optimizer, SFAO) else gate).rebind(model)
        return gate
    return carry_over(gate, present, model)


def move_gate(gate: Gate, optimizer: Optimizer, model: nn.Module) -> Gate:
    """Put the gate of an earlier optimizer in front of this one.

    If it watched all that the earlier one moved, it watches all that this one moves.
    """
    attachment = gate._attachment
    watched_all = attachment is not None and not attachment.free
    gate.detach()
    gate.rebind(model)
    if watched_all:
        gated = {parameter for layer in gate.layers for parameter in layer.parameters}
        for group in select_groups(model, optimizer):
            new = [parameter for parameter in group["params"] if parameter not in gated]
            if new:
                gate.add_param_group({**group, "params": new})
    return gate.attach(optimizer)


def carry_over(gate: Gate, present: Gate, model: nn.Module) -> Gate:
    """Let the gate that comes with a new optimizer go on where the one of the tasks before has ended."""
    if not present.is_empty:
        raise ValueError(
            "an optimizer must have one gate, but this one comes with a memory of its own beside the one so far; "
            "make the optimizer without a gate, or start with a new callback"
        )
    gate.rebind(model)
    present.load_state_dict(gate.state_dict())
    return present
