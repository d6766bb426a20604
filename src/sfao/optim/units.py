"""What one gradient is taken of: the batches of a task, or single examples of it, numbered."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from sfao.optim.consolidation import Batch, as_pairs


@dataclass(frozen=True)
class Units:
    """Batches, and how many there are if that is known before the last has come."""

    batches: Iterable[object]
    count: int | None

    def wanted(self, wants: Callable[[int], bool]) -> Iterator[tuple[int, Batch]]:
        """Those that are wanted, with their numbers; each is asked for once, in order.

        Of a sequence, no other is even looked at.
        """
        if isinstance(self.batches, Sequence):
            numbers = [number for number in range(len(self.batches)) if wants(number)]
            yield from zip(numbers, as_pairs(self.batches[number] for number in numbers), strict=True)
        else:
            for number, batch in enumerate(as_pairs(self.batches)):
                if wants(number):
                    yield number, batch


def units_of(
    batches: Iterable[object], per: str, limit: int | None, capacity: int, generator: torch.Generator
) -> Units:
    """All batches, or at most `limit` of them, uniform; of examples, as many as the memory can hold by default."""
    if per == "example":
        drawn = sample_examples(as_pairs(batches), limit or capacity, generator)
        return Units(drawn, len(drawn))
    if limit is None:
        return Units(batches, _length(batches))
    if isinstance(batches, Sequence):
        chosen = torch.randperm(len(batches), generator=generator, device="cpu")[:limit].sort().values
        return Units([batches[number] for number in chosen.tolist()], len(chosen))
    drawn = sample(as_pairs(batches), limit, generator)
    return Units(drawn, len(drawn))


def sample(batches: Iterable[Batch], limit: int, generator: torch.Generator) -> list[Batch]:
    """At most `limit` of the batches, uniform, in one pass over them (reservoir sampling)."""
    kept: list[Batch] = []
    for seen, (inputs, targets) in enumerate(batches):
        place = seen if seen < limit else int(torch.randint(seen + 1, (), generator=generator, device="cpu"))
        if place < limit:
            # Copies: a batch may be a view that would keep a larger piece alive.
            kept[place : place + 1] = [(inputs.clone(), targets.clone())]
    return kept


def sample_examples(batches: Iterable[Batch], limit: int, generator: torch.Generator) -> list[Batch]:
    """At most `limit` examples as batches of one, uniform, in one pass; the places of a batch are drawn at once."""
    kept: list[Batch] = []
    seen = 0
    for inputs, targets in batches:
        arrivals = torch.arange(seen, seen + len(inputs), device="cpu")
        drawn = torch.rand(len(inputs), dtype=torch.float64, generator=generator, device="cpu") * (arrivals + 1)
        places = torch.where(arrivals < limit, arrivals, drawn.long())
        hits = (places < limit).nonzero()[:, 0]
        for number, place in zip(hits.tolist(), places[hits].tolist(), strict=True):
            one = slice(number, number + 1)
            kept[place : place + 1] = [(inputs[one].clone(), targets[one].clone())]
        seen += len(inputs)
    return kept


def _length(batches: Iterable[object]) -> int | None:
    try:
        return len(batches)  # type: ignore[arg-type]
    except TypeError:  # a generator, or a loader over a stream
        return None
