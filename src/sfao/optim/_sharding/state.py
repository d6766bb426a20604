"""The state of a layer whose parameters ranks hold in shards: tensors say what they are a part of."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from sfao.gating.memory import Memory
from sfao.gating.subspace import Subspace
from sfao.optim._sharding.shards import Shards, cut_like, is_sharded
from sfao.optim._sharding.whole_layers import load_shard, map_memory, map_space
from sfao.optim._sketch import sketch
from sfao.optim.layers import Layer


def write_shard(layer: Layer, shards: Shards) -> dict[str, Any]:
    """Return what differs from the state of a whole layer: memories and the sketch of the weights, as DTensors."""
    spaces = zip(layer.spaces, layer.whole_layouts, strict=True)
    return {
        "memory": map_memory(layer.memory.state_dict(), layer, shards.wrap),
        "spaces": [map_space(space.state_dict(), layout, shards.wrap) for space, layout in spaces],
        "sketch": shards.wrap(torch.tensor([sketch(layer)], dtype=torch.float64), 0, shards.size),
    }


def read_shard(
    layer: Layer, memory: dict[str, Any], spaces: Sequence[dict[str, Any]], shards: Shards, *, trusts_products: bool
) -> tuple[Memory, list[Subspace]]:
    """Return this rank's memories, from its own state or from that of a whole layer."""
    found = [map_space(state, layout, shards.unwrap) for state, layout in zip(spaces, layer.whole_layouts, strict=True)]
    return load_shard(layer, map_memory(memory, layer, shards.unwrap), found, trusts_products=trusts_products)


def check_not_cut(memory: dict[str, Any], spaces: Sequence[dict[str, Any]]) -> None:
    """Raise a ValueError if a state is a rank's shard of one."""
    tensors: list[Tensor] = [tensor for block in memory["blocks"] for tensor in block["tensors"]]
    tensors += [space["axes"] for space in spaces]
    if any(map(is_sharded, tensors)):
        raise ValueError(
            "a state of shards, which several ranks saved, must be loaded by as many ranks with shards; "
            "to change their number, save by torch.distributed.checkpoint: sfao.integrations.dcp"
        )


def place_state(optimizer: Optimizer) -> None:
    """Cut what an optimizer has loaded as its parameters are: momentum, say, that one process saved whole."""
    for parameter, of_one in optimizer.state.items():
        for name, value in of_one.items() if is_sharded(parameter) else ():
            if isinstance(value, Tensor) and not is_sharded(value) and value.ndim and value.shape == parameter.shape:
                of_one[name] = cut_like(value, parameter)
