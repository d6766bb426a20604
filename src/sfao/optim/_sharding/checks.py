"""Checks of param groups whose parameters are held in shards."""

from collections.abc import Mapping, Sequence
from typing import Any

from sfao.optim._sharding.shards import Shards, find_dim, find_shards


def find_group_shards(groups: Sequence[Mapping[str, Any]], sync: bool) -> Shards | None:
    """Return the ranks that hold the parameters of these groups in shards, None if nobody does."""
    shards = find_shards([(group["name"], group["params"]) for group in groups])
    if shards is not None and not sync:
        raise ValueError("`sync` must be True where ranks hold one model in shards, got False")
    return shards


def check_same_shards(group: Mapping[str, Any], shards: Shards | None) -> None:
    """Raise a ValueError if a new group is held by other ranks than those before."""
    own = find_shards([(group["name"], group["params"])])
    is_cut = any(find_dim(parameter) is not None for parameter in group["params"])
    if own is not None and (shards is None or (own != shards if is_cut else own.mesh != shards.mesh)):
        raise ValueError(f"all parameters must be sharded over the same ranks, but those of {group['name']!r} are not")
