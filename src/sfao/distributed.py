"""Several ranks that train one model: ranks that share values and fail together, and parameters in shards (DTensors).

Sharded parameters, by FSDP2 or tensor parallel, are gathered to compute with, and cut to be written. On one process
all of this is the identity.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor, distributed, nn

T = TypeVar("T")


class RankFailure(RuntimeError):  # noqa: N818, it names what happened
    """A failure on some ranks that all know of: nothing was changed on any."""


class Ranks:
    """The ranks of a process group; a single one without torch.distributed. All call the same methods in one order.

    A rank that fails meanwhile reports its error where the others report values; then all raise.

    Args:
        group: the process group, None for all ranks.
        sync: False if every rank trains a model of its own.
    """

    def __init__(self, group: Any, sync: bool) -> None:
        self._group = group
        self.own, self.size = 0, 1
        if sync and distributed.is_available() and distributed.is_initialized():
            self.own, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks; raise a RankFailure if one has failed."""
        return [value] if self.size == 1 else self._exchange(None, value)

    def broadcast(self, value: T) -> T:
        """Return the value of the first rank."""
        held = [value]
        if self.size > 1:
            distributed.broadcast_object_list(held, group=self._group, group_src=0)
        return held[0]

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite tensors with those of the first rank: others may round differently."""
        for tensor in tensors if self.size > 1 else ():
            distributed.broadcast(tensor, group=self._group, group_src=0)

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Make all ranks fail if one does."""
        try:
            yield
        except RankFailure:
            raise
        except Exception as error:
            if self.size == 1:
                raise
            reason = str(error).strip().partition("\n")[0]
            try:
                self._exchange(f"{type(error).__name__}: {reason}", None)
            except RankFailure as failure:
                raise failure from error

    def _exchange(self, error: str | None, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, (error, value), group=self._group)
        by_reason: dict[str, list[int]] = {}
        for rank, (reason, _) in enumerate(found):
            if reason is not None:
                by_reason.setdefault(reason, []).append(rank)
        if by_reason:
            said = "; ".join(f"{name_ranks(ranks)}: {reason}" for reason, ranks in by_reason.items())
            raise RankFailure(f"consolidate() failed, and no rank has stored anything: {said}")
        return [of_rank for _, of_rank in found]

    def check_alike(self, facts: dict[str, Any]) -> None:
        """Raise a ValueError that names the first fact that isn't the same on all ranks."""
        gathered = self.gather(facts)
        for name in facts:
            others = [rank for rank, of_rank in enumerate(gathered) if of_rank[name] != gathered[0][name]]
            if others:
                raise ValueError(f"the {name} must be the same on all ranks, but differ on {name_ranks(others)}")


def name_ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


# -- Shards ----------------------------------------------------------------------------------------------


def is_sharded(tensor: object) -> bool:
    """Return True for a DTensor; torch's module of them isn't imported to find out."""
    return hasattr(tensor, "placements")


def to_local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole tensor; all ranks must call this together for a DTensor."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def shard_like(full: Tensor, parameter: Tensor) -> Tensor:
    """Return a full tensor, which all ranks hold, sharded as the parameter is."""
    if not is_sharded(parameter):
        return full
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    return distribute_tensor(full, mesh, placements, src_data_rank=None)


def reshard(model: nn.Module) -> None:
    """Put the sharded parameters back: between passes, fully_shard may leave others in their places."""
    for part in _find_modules(model, "FSDPModule"):
        part.reshard()  # type: ignore[operator]


def is_data_parallel(model: nn.Module) -> bool:
    """Return True if ranks see batches of their own: with fully_shard they do, with tensor parallel they don't."""
    return bool(_find_modules(model, "FSDPModule")) or not any(map(is_sharded, model.parameters()))


def check_not_flat(model: nn.Module) -> None:
    """Raise a ValueError for FSDP1, whose parameters are flat pieces without rows."""
    if _find_modules(model, "FullyShardedDataParallel"):
        raise ValueError("`model` must be sharded by torch.distributed.fsdp.fully_shard, got FullyShardedDataParallel")


def _find_modules(model: nn.Module, kind: str) -> list[nn.Module]:
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    return [] if fsdp is None else [part for part in model.modules() if isinstance(part, getattr(fsdp, kind))]


def backward_in_shards(
    model: nn.Module, evaluate: Callable[[], Tensor], parameters: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the whole gradients of a value by sharded parameters; all ranks call this together, `.grad` is untouched.

    The graph of such a model holds other tensors than its parameters, which get their gradients by backward().
    """
    reshard(model)
    everything = list({*model.parameters(), *parameters})
    held = [parameter.grad for parameter in everything]
    for parameter in everything:
        parameter.grad = None
    try:
        evaluate().backward()
        found = [parameter.grad for parameter in parameters]
    finally:
        reshard(model)
        for parameter, gradient in zip(everything, held, strict=True):
            parameter.grad = gradient
    return [None if gradient is None else full_tensor(gradient) for gradient in found]
