"""The state of a gate, written as plain containers and tensors, and read with every check before anything changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sfao.gating.memory import Memory
from sfao.optim.layers import Layer


@dataclass(frozen=True)
class ReadState:
    """What `read_state` read: the task, and the memory and the counts of each layer."""

    task: int
    layers: list[tuple[Memory, dict[str, int]]]


def layer_state(layer: Layer, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "shapes": [list(parameter.shape) for parameter in layer.parameters],
        "counts": counts,
        "memory": layer.memory.state_dict(),
    }


def read_state(state: dict[str, Any], granularity: str, layers: Sequence[Layer]) -> ReadState:
    """The state, checked against these layers; a RuntimeError if it is of another model or damaged."""
    try:
        if state["granularity"] != granularity:
            raise RuntimeError(f"`state_dict` must have granularity {granularity!r}, got {state['granularity']!r}")
        names = [layer.name for layer in layers]
        if list(state["layers"]) != names:
            raise RuntimeError(f"`state_dict` must be of a model with the layers {names}, got {list(state['layers'])}")
        return ReadState(int(state["task"]), [_read_layer(layer, state["layers"][layer.name]) for layer in layers])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RuntimeError(f"`state_dict` must come from a gate, but reading it failed: {error!r}") from error


def _read_layer(layer: Layer, saved: dict[str, Any]) -> tuple[Memory, dict[str, int]]:
    shapes = [list(parameter.shape) for parameter in layer.parameters]
    if saved["shapes"] != shapes:
        raise RuntimeError(
            f"`state_dict` must have parameters of shapes {shapes} in layer {layer.name!r}, got {saved['shapes']}"
        )
    counts = {name: int(saved["counts"][name]) for name in layer.counts}
    device = layer.parameters[0].device if layer.parameters else torch.device("cpu")
    return Memory.from_state_dict(saved["memory"], layer.memory.layouts, device), counts
