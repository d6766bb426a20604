"""Storing a task where ranks hold a model in shards: all of them as one process would, then each its shard."""

from collections.abc import Callable, Sequence

from torch import nn

from sfao.optim._agreement import digest_memories, share_memories
from sfao.optim._consolidation.batches import Request
from sfao.optim._consolidation.store import store_gradient, store_memories
from sfao.optim._host_path import check_finite, read_gradient
from sfao.optim._ranks import Ranks, find_others, name_ranks
from sfao.optim._sharding.shards import Shards, make_whole
from sfao.optim._sharding.whole_layers import adopt_whole, make_whole_layers
from sfao.optim._whole_or_not import Exactly
from sfao.optim.layers import Layer


def store_shards(
    layers: Sequence[Layer],
    shards: Shards,
    ranks: Ranks | None,
    task: int,
    model: nn.Module,
    request: Request,
    exactly: Exactly,
    confirm: Callable[[], object] | None = None,
) -> int:
    """Store a task in whole memories, on every rank alike, and keep this rank's shard; return how much was stored."""
    whole = make_whole_layers(layers, shards)
    stored = store_memories(whole, task, model, request, exactly, confirm)
    if ranks is not None:
        equalise(whole, ranks, is_data_parallel(model))
    for layer, of_all in zip(layers, whole, strict=True):
        adopt_whole(layer, of_all, shards)
    return stored


def remember_shards(layers: Sequence[Layer], shards: Shards, task: int) -> int:
    """Store the directions of the gradients that backward() left, whole; return how many were stored."""
    whole = make_whole_layers(layers, shards)
    stored = 0
    for layer in whole:
        gradients = [None if p.grad is None else make_whole(p.grad) for p in layer.parameters]
        if any(gradient is not None for gradient in gradients):
            gradient = read_gradient(layer, gradients)
            check_finite(layer, gradient)
            stored += store_gradient(layer, gradient, task)
    for layer, of_all in zip(layers, whole, strict=True):
        adopt_whole(layer, of_all, shards)
    return stored


def equalise(whole: list[Layer], ranks: Ranks, may_differ: bool) -> None:
    """Let all ranks hold the memories of the first, theirs differing by rounding; or raise if they must not differ."""
    others = find_others(ranks.gather(digest_memories(whole)))
    if others and not may_differ:
        raise ValueError(
            "the batches must be the same on all ranks that hold one model by tensor parallel, but those of "
            f"{name_ranks(others)} are others"
        )
    if others:
        share_memories(whole, ranks)


def is_data_parallel(model: nn.Module) -> bool:
    """Tell whether ranks see batches of their own: those of fully_shard do, those of tensor parallel do not."""
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(module, FSDPModule) for module in model.modules())
