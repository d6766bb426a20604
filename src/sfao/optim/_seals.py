"""Seals: digests of the entries of a layer's state, by which one that was altered is known when it is loaded."""

from collections.abc import Iterator, Mapping
from typing import Any

from sfao.optim._digest import digest
from sfao.optim._sharding.shards import is_sharded
from sfao.optim.layers import strip_saved_name

#: The key of the seals in the state of a layer.
SEALS = "seals"
#: Characters of a digest that are kept: chance finds another entry with these once in 2^64.
LENGTH = 16
#: Entries that ranks with shards of a layer hold parts of: they have no seal, as others may load them in other parts.
CUT = ("memory/blocks", "spaces", "sketch")


def seal(name: str, task: int, granularity: str, state: Mapping[str, Any], *, in_shards: bool) -> dict[str, str]:
    """Return the seals of a layer's state, by entry; one says which layer it is of."""
    entries = {path: value for path, value in list_entries(state) if not (in_shards and path.startswith(CUT))}
    sealed = {path: digest(value)[:LENGTH] for path, value in entries.items()}
    return {"": digest(_identify(name, task, granularity))[:LENGTH], **sealed}


def check_seals(name: str, task: Any, granularity: Any, state: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first entry that is not what was sealed; states of before have no seals."""
    seals = state.get(SEALS, {})
    if seals and seals.get("") != digest(_identify(name, task, granularity))[:LENGTH]:
        raise ValueError("it was saved of another layer, task or granularity")
    entries = dict(list_entries(state))
    for path, expected in seals.items():
        if path and path not in entries:
            raise ValueError(f"{path!r} was saved and is missing")
        if path and not _is_cut(entries[path]) and digest(entries[path])[:LENGTH] != expected:
            raise ValueError(f"{path!r} was altered since it was saved")


def is_sealed(state: Mapping[str, Any], path: str) -> bool:
    """Tell whether an entry has a seal."""
    return path in state.get(SEALS, {})


def list_entries(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a layer's state with their paths."""
    for name, value in state.items():
        if name == SEALS:
            continue
        if name == "memory":
            yield from ((f"memory/{key}", of_key) for key, of_key in value.items())
        elif name == "spaces":
            for number, space in enumerate(value):
                yield from ((f"spaces/{number}/{key}", of_key) for key, of_key in space.items())
        else:
            yield name, value


def _identify(name: str, task: Any, granularity: Any) -> list[Any]:
    return [strip_saved_name(name), task, granularity]


def _is_cut(value: Any) -> bool:
    """Tell whether a value, or a tensor inside, is a rank's shard of what was sealed."""
    if isinstance(value, Mapping):
        return any(map(_is_cut, value.values()))
    return any(map(_is_cut, value)) if isinstance(value, (list, tuple)) else is_sharded(value)
