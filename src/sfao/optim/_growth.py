"""Layers that have grown: larger parameters take the place of those that a gate watches, with their memory."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sfao.gating._layout import lay_out
from sfao.optim.layers import Layer, layer_groups


def find_growth(layers: Sequence[Layer], model: nn.Module) -> dict[Layer, list[Tensor]]:
    """Return the new parameters of layers that the model holds no more, found by name.

    A ValueError names the first layer that is gone, or whose shapes are others than with more rows.
    """
    there = set(model.parameters())
    by_name = {group["name"]: group["params"] for group in layer_groups(model, trainable_only=False)}
    found: dict[Layer, list[Tensor]] = {}
    for layer in layers:
        if there.issuperset(layer.parameters):
            continue
        own = [parameter for parameter in by_name.get(layer.name, ()) if parameter.numel()]
        if len(own) > len(layer.parameters):
            own = [parameter for parameter in own if parameter.requires_grad]
        if not own:
            raise ValueError(f"`model` must hold the gated layers, by their names, but has no layer {layer.name!r}")
        _check_shapes(layer, own)
        found[layer] = own
    return found


def _check_shapes(layer: Layer, parameters: Sequence[Tensor]) -> None:
    before, after = ([tuple(p.shape) for p in of] for of in (layer.parameters, parameters))
    has_grown = len(before) == len(after) and all(
        old[1:] == new[1:] and old[:1] <= new[:1] and len(old) == len(new)
        for old, new in zip(before, after, strict=True)
    )
    before_columns, after_columns = ([layout.columns for layout in lay_out(shapes)] for shapes in (before, after))
    if not has_grown or before_columns != after_columns:
        raise ValueError(f"layer {layer.name!r} may have grown by rows alone, got shapes {after}, which were {before}")


def grow_layer(layer: Layer, parameters: Sequence[Tensor]) -> None:
    """Let a layer watch these parameters in the place of its own; what it remembers is of the old rows."""
    layouts = lay_out([parameter.shape for parameter in parameters])
    layer.memory.grow(layouts)
    for space, layout in zip(layer.spaces, layouts, strict=True):
        space.grow(layout)
    layer.parameters[:] = parameters
    layer.set_spaces(layer.spaces)


def grow_state(state: dict[str, Any], shape: torch.Size) -> dict[str, Any]:
    """Return an optimizer's state of a parameter, with zeros for rows that are new."""
    grown = dict(state)
    for name, value in state.items():
        if isinstance(value, Tensor) and value.ndim and value.shape[1:] == shape[1:]:
            grown[name] = value.new_zeros(shape)
            grown[name][: len(value)] = value
    return grown
