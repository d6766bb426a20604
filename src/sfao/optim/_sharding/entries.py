"""Some entries of a parameter, those that this rank holds of it."""

import torch
from torch import Tensor

from sfao.optim._sharding.shards import Shards, find_dim, localise


def look_at_shard(parameter: Tensor, step: int, shards: Shards) -> tuple[Tensor, Tensor]:
    """Return which of every `step`-th entry of the whole parameter this rank holds, and their values.

    Of parameters that every rank holds, the first one does.
    """
    places = torch.arange(0, parameter.numel(), step, device="cpu")
    local, dim = localise(parameter).detach().flatten(), find_dim(parameter)
    if dim is None:
        held = places < (parameter.numel() if shards.rank == 0 else 0)
        return held, local[places[held].to(local.device)].double().cpu()
    block = parameter.numel() // parameter.shape[: dim + 1].numel()
    part = shards.cut(parameter.shape[dim])
    along = places // block % parameter.shape[dim]
    held = (along >= part.start) & (along < part.stop)
    before = places[held] // (block * parameter.shape[dim])
    inside = places[held] % (block * parameter.shape[dim]) - part.start * block
    index = before * (block * (part.stop - part.start)) + inside
    return held, local[index.to(local.device)].double().cpu()
