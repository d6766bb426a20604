"""The batches of all ranks as those of one process: the shard of the first rank, then that of the second, and so on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from sfao.optim._consolidation.batches import (
    Batch,
    Reader,
    Request,
    Units,
    count_batches,
    sample_batches,
    sample_examples,
)
from sfao.optim._consolidation.trees import count_examples, find_tensors, measure_size, move
from sfao.optim._ranks import Ranks, name_ranks


def join_request(request: Request, ranks: Ranks) -> Request:
    """Return the request for the batches of all ranks."""
    return replace(request, draw_examples=partial(gather_examples, ranks), draw_units=partial(make_joint_units, ranks))


def gather_examples(
    ranks: Ranks, batches: Iterable[Batch], limit: int, generator: torch.Generator, *, must_cut: bool = False
) -> list[Batch]:
    """Return at most `limit` examples of all ranks' batches, uniform: the same on every rank.

    While all of them are no more, they are those that one process would draw, and leave the generator as it would.
    """
    counter = _Counter(batches)
    drawn = sample_examples(counter, limit, _fork(generator, 1 + ranks.own), must_cut=must_cut)
    shards = ranks.gather(([_prepare(batch) for batch in drawn], counter.examples, counter.batches))
    _check_finite([kept for kept, _, _ in shards])
    is_cut = all(count_examples(batch) == 1 for kept, _, _ in shards for batch in kept)
    seen = [examples if is_cut else whole for _, examples, whole in shards]
    sizes = [measure_size(batch) for kept, _, _ in shards for batch in kept[:1]]
    most = limit if is_cut else max(1, limit // max(sizes))
    joint = _merge([kept for kept, _, _ in shards], seen, most, _fork(generator, 0))
    return sample_examples(joint, limit, generator, must_cut=must_cut)


def make_joint_units(
    ranks: Ranks,
    batches: Iterable[object],
    per: str,
    limit: int | None,
    capacity: int,
    generator: torch.Generator,
    read: Reader,
) -> Units:
    """Return all batches or examples of all ranks, or some, as one process would number and draw them."""
    if per == "example":
        drawn = gather_examples(ranks, read(batches), limit or capacity, generator, must_cut=True)
        return Units(drawn, len(drawn), read)
    count = count_batches(batches)
    if count is None:
        batches = list(batches)
        count = len(batches)
    counts = ranks.gather(count)
    total, offset = sum(counts), sum(counts[: ranks.own])
    chosen: Sequence[int] = range(total)
    if limit is not None and isinstance(batches, Sequence):
        chosen = torch.randperm(total, generator=generator, device="cpu")[:limit].sort().values.tolist()
    elif limit is not None:
        chosen = sample_batches(range(total), limit, generator)
    return JointUnits(batches, len(chosen), read, ranks, chosen, range(offset, offset + count))


@dataclass(frozen=True)
class JointUnits(Units):
    """Units of all ranks: each hands in those of its own that are wanted."""

    ranks: Ranks
    #: The number, among all batches of all ranks, of each unit.
    chosen: Sequence[int]
    #: The numbers of this rank's batches.
    own: range

    def select(self, is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, Batch]]:
        wanted = {number: self.chosen[number] for number in range(len(self.chosen)) if is_wanted(number)}
        needed = {place - self.own.start for place in wanted.values() if place in self.own}
        local = Units(self.batches, None, self.read).select(needed.__contains__)
        found = {self.own.start + number: _prepare(batch) for number, batch in local}
        if len(found) < len(needed):
            raise ValueError(f"`batches` must yield as many batches as their length says, {len(self.own)}")
        shards = self.ranks.gather(found)
        _check_finite([list(shard.values()) for shard in shards])
        joint = {place: batch for shard in shards for place, batch in shard.items()}
        yield from ((number, joint[place]) for number, place in wanted.items())


class _Counter:
    """Counts batches and their examples as they go by."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches
        self.batches = self.examples = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            self.batches += 1
            self.examples += count_examples(batch) or 0
            yield batch


def _merge(
    shards: Sequence[Sequence[Batch]], seen: Sequence[int], limit: int, generator: torch.Generator
) -> list[Batch]:
    """Return a uniform draw of all that was seen, from uniform draws of each shard; all of it if it is no more."""
    if sum(seen) <= limit:
        return [batch for kept in shards for batch in kept]
    owners = torch.repeat_interleave(torch.arange(len(seen), device="cpu"), torch.tensor(seen, device="cpu"))
    drawn = owners[torch.randperm(len(owners), generator=generator, device="cpu")[:limit]]
    joint: list[Batch] = []
    for rank, kept in enumerate(shards):
        order = torch.randperm(len(kept), generator=generator, device="cpu")[: int((drawn == rank).sum())]
        joint += [kept[number] for number in order.sort().values.tolist()]
    return joint


def _fork(generator: torch.Generator, number: int) -> torch.Generator:
    """Return a generator of its own for a rank, or for all, which leaves the given one as it is."""
    twin = torch.Generator("cpu")
    twin.set_state(generator.get_state())
    seed = int(torch.randint(2**60, (), generator=twin, device="cpu"))
    return torch.Generator("cpu").manual_seed(seed + number)


def _prepare(batch: Batch) -> Batch:
    return move(batch, torch.device("cpu"), None)


def _check_finite(shards: Sequence[Sequence[Batch]]) -> None:
    """Raise a ValueError that names the ranks with inputs that are no numbers: once joined, nobody could tell."""
    floating = [[t for b in kept for t in find_tensors(b) if t.is_floating_point()] for kept in shards]
    found = [rank for rank, tensors in enumerate(floating) if not all(bool(torch.isfinite(t).all()) for t in tensors)]
    if found:
        raise ValueError(f"the batches must be finite, but those of {name_ranks(found)} were not")
