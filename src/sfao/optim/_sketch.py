"""A sketch of a layer's weights: a few numbers by which a memory that is loaded knows the weights that it is of."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sfao.gating._state_checks import check_numbers
from sfao.optim._sharding.entries import look_at_shard
from sfao.optim._sharding.shards import Shards, is_sharded, localise
from sfao.optim.layers import Layer

#: Numbers of a sketch, and entries of a parameter that it looks at.
NUMBERS, ENTRIES = 16, 2**16
#: Weights further than this from those that were saved, relative to their length, are others.
FAR = 0.5


def sketch(layer: Layer) -> list[float]:
    """Return sums of entries with random signs: the distance of two sketches is about that of the weights.

    Of weights that ranks hold in shards, the sums over this rank's entries.
    """
    total = torch.zeros(NUMBERS, dtype=torch.float64, device="cpu")
    generator = torch.Generator("cpu").manual_seed(0)
    for parameter in layer.parameters:
        count = -(-parameter.numel() // _choose_step(parameter))
        signs = torch.randint(0, 2, (count,), generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
        places = torch.randint(0, NUMBERS, (count,), generator=generator, device="cpu")
        if layer.shards is None:
            total.index_add_(0, places, _look_at_some(parameter) * signs)
        else:
            held, entries = look_at_shard(parameter, _choose_step(parameter), layer.shards)
            total.index_add_(0, places[held], entries * signs[held])
    return total.tolist()


def find_strangers(layers: Sequence[Layer], saved: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the layers that remember something, but whose weights are far from those saved, with the distances.

    None, if most of them are near: a memory is of a whole model.
    """
    gaps: dict[str, float] = {}
    for layer in layers:
        if layer.name in saved and (layer.remembers_inputs or len(layer.memory)):
            pair = torch.tensor([saved[layer.name], sketch(layer)], dtype=torch.float64, device="cpu")
            if layer.shards is not None:
                pair = layer.shards.total(pair.to(layer.parameters[0].device)).cpu()
            before, now = pair
            size = max(float(before.norm()), torch.finfo(torch.float32).tiny)
            gaps[layer.name] = float((now - before).norm()) / size
    far = {name: gap for name, gap in gaps.items() if not gap <= FAR}
    return far if 2 * len(far) > len(gaps) else {}


def check_sketches(layers: Sequence[Layer], saved: Mapping[str, Sequence[float]]) -> None:
    """Raise a RuntimeError if the weights of these layers are not those that their memories were saved with."""
    far = find_strangers(layers, saved)
    if far:
        name, gap = next(iter(far.items()))
        raise RuntimeError(
            f"the memory that was loaded must be of these weights, but those of layer {name!r} are {gap:.0%} away from "
            "those that it was saved with; load its weights, or call trust_memory()"
        )


def read_sketches(state: Mapping[str, Any], shards: Shards | None) -> dict[str, list[float]]:
    """Return the sketches in the states of layers; those from before there were any have none."""
    return {name: _read_sketch(of["sketch"], shards) for name, of in state.items() if "sketch" in of}


def _read_sketch(saved: Sequence[float] | Tensor, shards: Shards | None) -> list[float]:
    """Return a sketch, or this rank's share of one: its own, or all of one of whole weights if it is the first."""
    if isinstance(saved, Tensor) and is_sharded(saved):
        return [float(number) for number in localise(saved)[0]]
    whole = check_numbers("sketch", saved.sum(0).tolist() if isinstance(saved, Tensor) else saved, NUMBERS)
    return [number if shards is None or shards.rank == 0 else 0.0 for number in whole]


def _look_at_some(parameter: Tensor) -> Tensor:
    return parameter.detach().flatten()[:: _choose_step(parameter)].double().cpu()


def _choose_step(parameter: Tensor) -> int:
    return max(1, -(-parameter.numel() // ENTRIES))
