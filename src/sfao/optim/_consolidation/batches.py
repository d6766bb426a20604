"""The batches of a finished task, or single examples of it: one gradient is taken of each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfao.checks import check_count, nearest
from sfao.optim._consolidation.objectives import Loss, Objective, OwnObjective, PairLoss, TrueLogit
from sfao.optim._consolidation.trees import copy, count_examples, cut, describe, measure_size
from sfao.optim.layers import Layer

#: (inputs, targets), or whatever an objective reads.
Batch = Any

#: What a gradient is taken of, by target, unless told otherwise: examples for logits, whose gradients have rank 1 in a
#: Linear layer.
UNITS = {"loss": "batch", "logit": "example"}
DEFAULT_TARGET = "loss"


def check_arguments(target: str, per: str | None, limit: int | None) -> None:
    """Raise a ValueError that names the first argument of `consolidate` that breaks its rule."""
    for name, value, choices in (("target", target, tuple(UNITS)), ("per", per, tuple(UNITS.values()))):
        if value not in choices and (name, value) != ("per", None):
            raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}{nearest(value, choices)}")
    if limit is not None:
        check_count("limit", limit)


def choose_unit(target: str, per: str | None) -> str:
    """Return what one gradient is taken of, a batch or an example."""
    return UNITS[target] if per is None else per


#: Yields batches that have been looked at.
Reader = Callable[[Iterable[object]], Iterator[Batch]]


@dataclass(frozen=True)
class Units:
    """Batches that one gradient each may be taken of, and their number if it is known before the last has come."""

    batches: Iterable[object]
    count: int | None
    read: Reader

    def select(self, is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, Batch]]:
        """Yield those that are wanted, with their numbers; each number is asked about once, in order.

        Of a sequence, no other is even looked at.
        """
        if isinstance(self.batches, Sequence):
            numbers = [number for number in range(len(self.batches)) if is_wanted(number)]
            yield from zip(numbers, self.read(self.batches[number] for number in numbers), strict=True)
        else:
            for number, batch in enumerate(self.read(self.batches)):
                if is_wanted(number):
                    yield number, batch


def make_units(
    batches: Iterable[object], per: str, limit: int | None, capacity: int, generator: torch.Generator, read: Reader
) -> Units:
    """Return all batches, or at most `limit` of them, uniform; by default as many examples as the memory can hold."""
    if per == "example":
        drawn = sample_examples(read(batches), limit or capacity, generator, must_cut=True)
        return Units(drawn, len(drawn), read)
    if limit is None:
        return Units(batches, count_batches(batches), read)
    if isinstance(batches, Sequence):
        chosen = torch.randperm(len(batches), generator=generator, device="cpu")[:limit].sort().values
        return Units([batches[number] for number in chosen.tolist()], len(chosen), read)
    drawn = sample_batches(read(batches), limit, generator)
    return Units(drawn, len(drawn), read)


def sample_batches(batches: Iterable[Batch], limit: int, generator: torch.Generator) -> list[Batch]:
    """Return at most `limit` of the batches, uniform, in one pass over them (reservoir sampling)."""
    kept: list[Batch] = []
    for seen, batch in enumerate(batches):
        place = seen if seen < limit else int(torch.randint(seen + 1, (), generator=generator, device="cpu"))
        if place < limit:
            kept[place : place + 1] = [copy(batch)]
    return kept


def sample_examples(
    batches: Iterable[Batch], limit: int, generator: torch.Generator, *, must_cut: bool = False
) -> list[Batch]:
    """Return at most `limit` examples as batches of one, uniform, in one pass; places are drawn a batch at a time.

    Batches that cannot be cut stay whole, as many as hold about so many examples.
    """
    remaining = iter(batches)
    kept: list[Batch] = []
    seen = 0
    for batch in remaining:
        count = count_examples(batch)
        if count is None:
            if kept or must_cut:
                raise ValueError(
                    "`batches` must be cut into examples, so that all tensors inside share their first dimension, "
                    f"but a {describe(batch)} does not"
                )
            most = max(1, limit // max(1, measure_size(batch)))
            return sample_batches(_put_back(batch, remaining), most, generator)
        arrivals = torch.arange(seen, seen + count, device="cpu")
        drawn = torch.rand(count, dtype=torch.float64, generator=generator, device="cpu") * (arrivals + 1)
        places = torch.where(arrivals < limit, arrivals, drawn.long())
        hits = (places < limit).nonzero()[:, 0]
        for number, place in zip(hits.tolist(), places[hits].tolist(), strict=True):
            kept[place : place + 1] = [cut(batch, number)]
        seen += count
    return kept


def _put_back(batch: Batch, remaining: Iterator[Batch]) -> Iterator[Batch]:
    yield batch
    yield from remaining


def count_batches(batches: Iterable[object]) -> int | None:
    """Return how many batches there are, None if nobody knows before the last has come."""
    try:
        return len(batches)  # type: ignore[arg-type]
    except TypeError:  # a generator, or a loader over a stream
        return None


def as_they_are(batches: Iterable[object]) -> Iterator[Batch]:
    """Yield the batches of an objective that can read them."""
    yield from batches


def as_inputs(batches: Iterable[object]) -> Iterator[Batch]:
    """Yield (inputs, targets) pairs, or mappings of the model's arguments by name."""
    for batch in batches:
        if isinstance(batch, Mapping):
            yield batch
        else:
            yield from as_pairs([batch])


def as_pairs(batches: Iterable[object]) -> Iterator[Batch]:
    """Yield (inputs, targets) pairs; raise a ValueError for anything else."""
    for batch in batches:
        inputs, targets = _read_pair(batch)
        if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
            raise ValueError(
                "`batches` must yield as many targets as inputs, "
                f"got inputs of shape {tuple(inputs.shape)} and targets of shape {tuple(targets.shape)}"
            )
        yield inputs, targets


def _read_pair(batch: object) -> tuple[Tensor, Tensor]:
    if isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch):
        return batch[0], batch[1]
    raise ValueError(
        f"`batches` must yield (inputs, targets) pairs of tensors, got {describe(batch)}; for others give `objective`"
    )


@dataclass(frozen=True)
class Request:
    """The arguments of `consolidate`."""

    batches: Iterable[object]
    loss: Loss | None
    objective: Objective | None
    target: str | None
    per: str | None
    limit: int | None
    #: How examples and units are drawn: from these batches alone, or from those of all ranks.
    draw_examples: Callable[..., list[Batch]] = sample_examples
    draw_units: Callable[..., Units] = make_units

    def check(self, layers: Sequence[Layer]) -> None:
        """Raise a ValueError that names the first argument that breaks its rule, or has no effect on these layers."""
        check_arguments(self.target or DEFAULT_TARGET, self.per, self.limit)
        self._check_objective()
        if any("directions" in layer.memories for layer in layers):
            self.make_objective()
            return
        for name, value in (("target", self.target), ("per", self.per)):
            if value is not None:
                raise ValueError(f"`{name}` is of stored gradients, but this gate has memory='subspace', got {value!r}")

    def _check_objective(self) -> None:
        if self.objective is None:
            return
        if not callable(self.objective):
            raise ValueError(f"`objective` must be a function of (model, batch), got {type(self.objective).__name__}")
        for name, value in (("loss", self.loss), ("target", self.target)):
            if value is not None:
                raise ValueError(f"`objective` takes the place of `{name}`; give one of the two, got both")

    def make_objective(self) -> Objective:
        """Return the function of the model and a batch whose gradients are stored."""
        if self.objective is not None:
            return OwnObjective(self.objective)
        if self.target == "logit":
            return TrueLogit()
        if self.loss is None:
            raise ValueError('`loss` must be given for target="loss", got None; or give an `objective`')
        return PairLoss(self.loss)

    def make_forward(self) -> Objective | None:
        """Return what is called with the model and a batch to show layers their inputs, None for the model alone."""
        if self.objective is not None:
            return OwnObjective(self.objective)
        return None if self.loss is None else PairLoss(self.loss)

    def make_units(self, capacity: int, generator: torch.Generator) -> Units:
        """Return what a gradient each may be taken of."""
        unit = choose_unit(self.target or DEFAULT_TARGET, self.per)
        read = as_they_are if self.objective is not None else as_pairs
        return self.draw_units(self.batches, unit, self.limit, capacity, generator, read)

    def sample(self, limit: int, generator: torch.Generator) -> list[Batch]:
        """Return examples whose inputs are looked at, as batches of one where batches can be cut."""
        read = as_they_are if self.objective is not None else as_inputs if self.loss is None else as_pairs
        return self.draw_examples(read(self.batches), self.limit or limit, generator)
