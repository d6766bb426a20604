"""The processes that train one model together: values gathered, failures agreed on, differences named."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import distributed

from sfao.optim._lost_rank import LostRank, describe_loss, explain_loss, is_loss

T = TypeVar("T")


class RankFailure(RuntimeError):  # noqa: N818, it names what has happened
    """A failure on some ranks that all have agreed on: none has changed anything."""


class Ranks:
    """The ranks of a process group.

    All of them gather in the same order. A rank that fails meanwhile hands in its error where the others hand in
    values; all then raise.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self.own = distributed.get_rank(group)
        self.size = distributed.get_world_size(group)

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in their order; a RankFailure if one has failed."""
        found: list[T] = self._exchange(None, value)
        return found

    @contextmanager
    def agree_on_failure(self) -> Iterator[None]:
        """Let all ranks fail if one does."""
        try:
            yield
        except (RankFailure, LostRank):
            raise
        except Exception as error:
            if is_loss(error):
                raise describe_loss("what ranks remember", error) from error
            reason = str(error).strip().partition("\n")[0]
            try:
                self._exchange(f"{type(error).__name__}: {reason}", None)
            except RankFailure as failure:
                raise failure from error

    def _exchange(self, error: str | None, value: Any) -> Any:
        found: list[Any] = [None] * self.size
        with explain_loss("what ranks remember"):
            distributed.all_gather_object(found, (error, value), group=self._group)
        errors = {rank: failed for rank, (failed, _) in enumerate(found) if failed is not None}
        if errors:
            raise RankFailure(f"consolidate() failed, and no rank has stored anything: {_tell(errors)}")
        return [of_rank for _, of_rank in found]

    def share(self, value: T) -> T:
        """Return the value of the first rank."""
        held = [value]
        with explain_loss("what ranks remember"):
            distributed.broadcast_object_list(held, group=self._group, group_src=0)
        return held[0]

    def compare(self, number: int) -> list[int]:
        """Return the ranks whose number is not that of the first, in one collective."""
        device = "cuda" if "nccl" in distributed.get_backend(self._group) else "cpu"
        own = torch.tensor([number], dtype=torch.int64, device=device)
        found = [torch.empty_like(own) for _ in range(self.size)]
        with explain_loss("the ranks' decisions"):
            distributed.all_gather(found, own, group=self._group)
        numbers = torch.cat(found).tolist()
        return find_others(numbers)


def find_ranks(group: Any) -> Ranks | None:
    """Return the ranks of an initialised group, None if there is but one."""
    return Ranks(group) if distributed.get_world_size(group) > 1 else None


def find_others(values: Sequence[object]) -> list[int]:
    """Return the ranks whose value is not that of the first."""
    return [rank for rank, value in enumerate(values) if value != values[0]]


def name_ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _tell(errors: dict[int, str]) -> str:
    """Return the errors, the same ones together."""
    by_reason: dict[str, list[int]] = {}
    for rank, reason in errors.items():
        by_reason.setdefault(reason, []).append(rank)
    return "; ".join(f"{name_ranks(ranks)}: {reason}" for reason, ranks in by_reason.items())
