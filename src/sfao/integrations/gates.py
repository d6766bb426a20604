"""The gate in front of an optimizer: found, made, or carried over from the optimizer of the task before."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from sfao.optim._attachment import Attachment
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
    return next((owner.gate for owner in owners if isinstance(owner, Attachment)), None)


def check_one_source(gate: Gate | None, options: Mapping[str, Any]) -> None:
    """Raise a ValueError where both a gate and options of a new one are given."""
    if gate is not None and options:
        raise ValueError(f"options are for a new gate, but `gate` is given too, got {', '.join(options)}; leave one out")


def select_groups(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the layers of a model with those of their parameters that the optimizer optimizes."""
    optimized = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    groups = [
        {**group, "params": [parameter for parameter in group["params"] if parameter in optimized]}
        for group in layer_groups(model)
    ]
    return [group for group in groups if group["params"]]


def place_gate(gate: Gate | None, optimizer: Optimizer, model: nn.Module, options: Mapping[str, Any]) -> Gate:
    """Return the gate in front of this optimizer, with what the gate of the tasks before remembers.

    A new one is made of the options where there is none yet.
    """
    present = find_gate(optimizer)
    if present is None and gate is None:
        return Gate(select_groups(model, optimizer), **options).attach(optimizer)
    if present is None and gate is not None:
        gate.detach()
        gate.attach(optimizer)
        return gate
    if gate is None or present is gate:
        return present
    return carry_over(gate, present)


def carry_over(gate: Gate, present: Gate) -> Gate:
    """Let the gate of a new optimizer go on where the one of the tasks before has ended."""
    if present.task:
        raise ValueError(
            "an optimizer must have one gate, but this one comes with a memory of its own; "
            "make the callback with gate=None, or the optimizer without a gate"
        )
    present.load_state_dict(gate.state_dict())
    return present
