"""The parameters that an optimizer moves, beside those that a gate watches: a model may change under both."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from sfao.optim.layers import Layer


def list_members(groups: Iterable[Mapping[str, Any]]) -> list[Tensor]:
    """Return the parameters of an optimizer's groups."""
    return [parameter for group in groups for parameter in group["params"]]


def find_ungated(layers: Sequence[Layer], members: Iterable[Tensor]) -> list[Tensor]:
    """Return the parameters that no layer holds."""
    gated = {parameter for layer in layers for parameter in layer.parameters}
    return [parameter for parameter in members if parameter.numel() and parameter not in gated]


def check_members(layers: Sequence[Layer], members: Sequence[Tensor], free: Collection[Tensor]) -> None:
    """Raise a RuntimeError if a layer's parameter is no member, or a trainable member is in no layer, and not free."""
    optimized = set(members)
    for layer in layers:
        for parameter in layer.parameters:
            if parameter not in optimized:
                raise RuntimeError(
                    f"the parameters of layer {layer.name!r} must stay in the optimizer, but one of shape "
                    f"{tuple(parameter.shape)} has left it; call rebind(model) after a model has grown"
                )
    for parameter in find_ungated(layers, members):
        if parameter.requires_grad and parameter not in free:
            raise RuntimeError(
                f"a parameter of shape {tuple(parameter.shape)} came into the optimizer, but the gate watches it in no "
                "layer; call rebind(model), or detach() and attach() the gate to leave it free"
            )
