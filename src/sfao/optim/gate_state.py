"""The state of a gate, written as plain containers and tensors, and read with every check before anything changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sfao.gating.memory import Memory
from sfao.gating.options import DEFAULTS, check_options
from sfao.optim.layers import Layer


@dataclass(frozen=True)
class LayerState:
    """The state of one layer."""

    memory: Memory
    counts: dict[str, int]
    rule_state: tuple[float, ...]


@dataclass(frozen=True)
class GateState:
    """A state that `read_state` has checked: the task, and the state of each layer."""

    task: int
    layers: list[LayerState]


def write_layer_state(layer: Layer, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "shapes": [list(parameter.shape) for parameter in layer.parameters],
        "counts": counts,
        "rule_state": list(layer.rule_state),
        "memory": layer.memory.state_dict(),
    }


def read_state(state: dict[str, Any], granularity: str, layers: Sequence[Layer]) -> GateState:
    """Return the state, checked against these layers; a RuntimeError if it is of another model or damaged."""
    try:
        if state["granularity"] != granularity:
            raise RuntimeError(f"`state_dict` must have granularity {granularity!r}, got {state['granularity']!r}")
        names = [layer.name for layer in layers]
        if list(state["layers"]) != names:
            raise RuntimeError(f"`state_dict` must be of a model with the layers {names}, got {list(state['layers'])}")
        return GateState(int(state["task"]), [_read_layer(layer, state["layers"][layer.name]) for layer in layers])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RuntimeError(f"`state_dict` must come from a gate, but reading it failed: {error!r}") from error


def read_group_options(state: dict[str, Any], groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups with the options of the state, checked; a RuntimeError if they are of no gate."""
    try:
        read = [{**group, **DEFAULTS, **saved} for group, saved in zip(groups, state["options"], strict=True)]
        for group in read:
            check_options(group)
    except (KeyError, TypeError, ValueError) as error:
        raise RuntimeError(f"`state_dict` must hold the options of a gate: {error}") from error
    return read


def _read_layer(layer: Layer, saved: dict[str, Any]) -> LayerState:
    shapes = [list(parameter.shape) for parameter in layer.parameters]
    if saved["shapes"] != shapes:
        raise RuntimeError(
            f"`state_dict` must have parameters of shapes {shapes} in layer {layer.name!r}, got {saved['shapes']}"
        )
    counts = {name: int(saved["counts"][name]) for name in layer.counts}
    device = layer.parameters[0].device if layer.parameters else torch.device("cpu")
    memory = Memory.from_state_dict(saved["memory"], layer.memory.products.layouts, device)
    rule_state = tuple(map(float, saved.get("rule_state", layer.rule.initial_state())))
    if len(rule_state) != len(layer.rule_state):
        raise RuntimeError(f"`state_dict` must hold {len(layer.rule_state)} values of state in layer {layer.name!r}")
    return LayerState(memory, counts, rule_state)
