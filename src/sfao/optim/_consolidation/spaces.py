"""The input spaces of a finished task: the inputs that its layers see, added to those of the tasks before."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import copy

import torch
from torch import Tensor, nn

from sfao.gating.subspace import Subspace
from sfao.optim._consolidation.batches import Request
from sfao.optim._consolidation.inputs import EXAMPLES, SeenInputs, gather_inputs
from sfao.optim._sharding.shards import make_whole
from sfao.optim._whole_or_not import Exactly
from sfao.optim.layers import Layer

#: Functions that take a bias beside a weight.
JOINED = ("linear", "conv1d", "conv2d", "conv3d")


def find_spaces(
    layers: Sequence[Layer],
    model: nn.Module,
    request: Request,
    generator: torch.Generator,
    exactly: Exactly,
) -> dict[Layer, list[Subspace]]:
    """Return the spaces of the layers with the inputs of this task; those they have stay as they are."""
    examples = request.sample(EXAMPLES, generator)
    if not examples:
        raise ValueError("`batches` must yield at least one batch, got none")
    weights = {block[0]: len(block) == 2 for layer in layers for _, block in _split(layer)}
    seen = gather_inputs(model, examples, weights, generator, objective=request.make_forward())
    found = seen.moments
    if not found and not seen.others:
        raise ValueError("`model` must use the gated parameters, but none of them was used")
    spaces = exactly(lambda: {layer: _add_inputs(layer, seen) for layer in layers})
    _warn_about(layers, found, seen.others)
    return spaces


def _add_inputs(layer: Layer, seen: SeenInputs) -> list[Subspace]:
    """Return the spaces of a layer with the inputs that were seen; its own stay as they are."""
    spaces = []
    for space, block in _split(layer):
        if block[0] in seen.moments and len(block) <= 2:
            if not seen.moments[block[0]].is_finite:
                raise ValueError(f"the inputs of layer {layer.name!r} must be finite, but were not")
            space = copy(space)
            space.to(block[0].device)
            whole = [make_whole(parameter.detach()) for parameter in block]
            matrices = [parameter.reshape(space.layout.rows, -1).float() for parameter in whole]
            space.store(seen.moments[block[0]], layer.options["axes"], matrices, seen.used_rows.get(block[0]))
        spaces.append(space)
    return spaces


def _split(layer: Layer) -> Iterator[tuple[Subspace, list[Tensor]]]:
    """Yield each space with the parameters that it is of."""
    start = 0
    for space in layer.spaces:
        end = start + len(space.layout.columns)
        yield space, layer.parameters[start:end]
        start = end


def _warn_about(layers: Sequence[Layer], found: Iterable[Tensor], others: dict[Tensor, str]) -> None:
    """Warn of layers that the model uses in a way that has no input space, once for each."""
    seen = set(found)
    names = {
        layer.name: others[block[0]]
        for layer in layers
        if not layer.was_warned_of
        for _, block in _split(layer)
        if block[0] in others and block[0] not in seen
    }
    has_bias = any(
        layer.name in names
        and len(layer.parameters) == 1
        and layer.parameters[0].ndim == 1
        and names[layer.name] in JOINED
        for layer in layers
    )
    for layer in layers:
        layer.was_warned_of = layer.was_warned_of or layer.name in names
    if names:
        shown = ", ".join(f"{name!r} ({use})" for name, use in list(names.items())[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        warnings.warn(
            f"layers without an input space remember nothing, and move as without a gate: {shown}{more}; "
            'memory="directions" in their param groups gates them too'
            + ("; sfao.layer_groups(model) joins a bias to its weight" if has_bias else ""),
            RuntimeWarning,
            stacklevel=4,
        )
