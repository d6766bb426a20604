"""Layers as one process would hold them, for as long as a task is stored; and the shards of what they then hold."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from sfao.gating._block import Block
from sfao.gating._layout import Layout
from sfao.gating.factored import FactoredShard
from sfao.gating.memory import Memory
from sfao.gating.storage import load_block
from sfao.gating.subspace import Subspace
from sfao.optim._sharding.shards import Shards
from sfao.optim.layers import Layer

#: Cuts a tensor along a dimension, or joins it, which has so many entries when whole.
Change = Callable[[Tensor, int, int], Tensor]

#: By tensor of an input space, the dimension along which it is cut: axes and probes by columns, answers by rows.
SPACE_DIMS = {"axes": 1, "probes": 1, "answers": 1, "used_rows": 0}


def make_whole_layers(layers: Sequence[Layer], shards: Shards) -> list[Layer]:
    """Return layers with whole memories, which all ranks bring together; those given stay as they are."""
    return [_make_whole(layer, shards) for layer in layers]


def _make_whole(layer: Layer, shards: Shards) -> Layer:
    whole = copy(layer)
    whole.shards = None
    device = layer.parameters[0].device if layer.parameters else torch.device("cpu")
    state = map_memory(layer.memory.state_dict(), layer, shards.join)
    whole.memory = Memory.from_state_dict(state, layer.whole_layouts, device)
    spaces = []
    for space, layout in zip(layer.spaces, layer.whole_layouts, strict=True):
        joined = map_space(space.state_dict(), layout, shards.join)
        spaces.append(Subspace.from_state_dict(joined, layout, device))
    whole.spaces = spaces
    return whole


def adopt_whole(layer: Layer, whole: Layer, shards: Shards) -> None:
    """Let a layer hold this rank's shard of what a whole one holds."""
    memory, spaces = cut_layer(layer, whole.memory.state_dict(), [space.state_dict() for space in whole.spaces], shards)
    layer.memory = memory
    if whole.space_version != layer.space_version:
        layer.set_spaces(spaces)
        layer.travel = whole.travel
    layer.was_warned_of = whole.was_warned_of


def cut_layer(
    layer: Layer, memory: dict[str, Any], spaces: Sequence[dict[str, Any]], shards: Shards
) -> tuple[Memory, list[Subspace]]:
    """Return this rank's shard of whole memories, given as their states."""
    found = [map_space(state, layout, shards.take) for state, layout in zip(spaces, layer.whole_layouts, strict=True)]
    return load_shard(layer, map_memory(memory, layer, shards.take), found)


def load_shard(
    layer: Layer, memory: dict[str, Any], spaces: Sequence[dict[str, Any]], *, trusts_products: bool = True
) -> tuple[Memory, list[Subspace]]:
    """Return the memories that a rank's own states are of."""
    device = layer.parameters[0].device if layer.parameters else torch.device("cpu")
    layouts = layer.memory.products.layouts
    loaded = Memory.from_state_dict(memory, layouts, device, load_block_shard, trusts_products=trusts_products)
    layer.share_products(loaded)
    found = []
    for state, space in zip(spaces, layer.spaces, strict=True):
        own = Subspace.from_state_dict(state, space.layout, device, width=space.probes.shape[1], rows=space.rows)
        found.append(own)
    return loaded, found


def load_block_shard(kind: str, layout: Layout, tensors: Sequence[Tensor], device: torch.device) -> Block:
    """Return a block that holds a rank's shard of directions; of factors, some of the columns."""
    if kind != FactoredShard.kind:
        return load_block(kind, layout, tensors, device)
    block = FactoredShard(layout, tensors[0].dtype, tensors[0].shape[1], [right.shape[-1] for right in tensors[1:]])
    block.load(tensors, device)
    return block


def map_memory(state: dict[str, Any], layer: Layer, change: Change) -> dict[str, Any]:
    """Return the state of a memory of directions with every tensor changed that is cut.

    Directions as rows of a matrix come and go as matrices themselves, cut along their rows.
    """
    blocks = []
    for saved, layout, has_rows in zip(state["blocks"], layer.whole_layouts, layer.have_rows, strict=True):
        tensors = saved["tensors"]
        if saved["kind"] == FactoredShard.kind:
            sizes = [layout.rows, *layout.columns]
            changed = [change(tensor, 2, size) for tensor, size in zip(tensors, sizes, strict=True)]
        elif has_rows:
            changed = [
                change(as_matrices(tensor, columns), 1, layout.rows)
                for tensor, columns in zip(tensors, layout.columns, strict=True)
            ]
        else:
            changed = [change(tensor, 1, size) for tensor, size in zip(tensors, layout.columns, strict=True)]
        blocks.append({**saved, "tensors": changed})
    return {**state, "blocks": blocks}


def as_matrices(directions: Tensor, columns: int) -> Tensor:
    """Return rows of a matrix, numbered by direction, each as a matrix with so many columns."""
    if directions.ndim == 3:
        return directions
    return directions.reshape(len(directions), directions.shape[1] // columns, columns)


def map_space(state: dict[str, Any], layout: Layout, change: Change) -> dict[str, Any]:
    """Return the state of an input space with every tensor changed that is cut."""
    counts = {"axes": layout.width, "probes": layout.width, "answers": layout.rows, "used_rows": layout.rows}
    changed = {name: change(state[name], dim, counts[name]) for name, dim in SPACE_DIMS.items()}
    return {**state, **changed}
