"""The batches of a finished task, or single examples of it: one gradient is taken of each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfao.checks import check_count, nearest
from sfao.optim.layers import Layer

Loss = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]

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


def choose_objective(target: str, loss: Loss | None) -> Loss:
    """Return the function of outputs and targets whose gradients are stored."""
    if target == "logit":
        return measure_true_logit
    if loss is None:
        raise ValueError('`loss` must be given for target="loss", got None')
    return loss


@dataclass(frozen=True)
class Request:
    """The arguments of `consolidate`."""

    batches: Iterable[object]
    loss: Loss | None
    target: str | None
    per: str | None
    limit: int | None

    def check(self, layers: Sequence[Layer]) -> None:
        """Raise a ValueError that names the first argument that breaks its rule, or has no effect on these layers."""
        check_arguments(self.target or DEFAULT_TARGET, self.per, self.limit)
        if any("directions" in layer.memories for layer in layers):
            choose_objective(self.target or DEFAULT_TARGET, self.loss)
            return
        for name, value in (("target", self.target), ("per", self.per)):
            if value is not None:
                raise ValueError(f"`{name}` is of stored gradients, but this gate has memory='subspace', got {value!r}")

    def make_objective(self) -> Loss:
        """Return the function of outputs and targets whose gradients are stored."""
        return choose_objective(self.target or DEFAULT_TARGET, self.loss)

    def make_units(self, capacity: int, generator: torch.Generator) -> "Units":
        """Return what a gradient each may be taken of."""
        unit = choose_unit(self.target or DEFAULT_TARGET, self.per)
        return make_units(self.batches, unit, self.limit, capacity, generator)


@dataclass(frozen=True)
class Units:
    """Batches that one gradient each may be taken of, and their number if it is known before the last has come."""

    batches: Iterable[object]
    count: int | None

    def select(self, is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, Batch]]:
        """Yield those that are wanted, with their numbers; each number is asked about once, in order.

        Of a sequence, no other is even looked at.
        """
        if isinstance(self.batches, Sequence):
            numbers = [number for number in range(len(self.batches)) if is_wanted(number)]
            yield from zip(numbers, as_pairs(self.batches[number] for number in numbers), strict=True)
        else:
            for number, batch in enumerate(as_pairs(self.batches)):
                if is_wanted(number):
                    yield number, batch


def make_units(
    batches: Iterable[object], per: str, limit: int | None, capacity: int, generator: torch.Generator
) -> Units:
    """Return all batches, or at most `limit` of them, uniform; by default as many examples as the memory can hold."""
    if per == "example":
        drawn = sample_examples(as_pairs(batches), limit or capacity, generator)
        return Units(drawn, len(drawn))
    if limit is None:
        return Units(batches, _count(batches))
    if isinstance(batches, Sequence):
        chosen = torch.randperm(len(batches), generator=generator, device="cpu")[:limit].sort().values
        return Units([batches[number] for number in chosen.tolist()], len(chosen))
    drawn = sample_batches(as_pairs(batches), limit, generator)
    return Units(drawn, len(drawn))


def sample_batches(batches: Iterable[Batch], limit: int, generator: torch.Generator) -> list[Batch]:
    """Return at most `limit` of the batches, uniform, in one pass over them (reservoir sampling)."""
    kept: list[Batch] = []
    for seen, (inputs, targets) in enumerate(batches):
        place = seen if seen < limit else int(torch.randint(seen + 1, (), generator=generator, device="cpu"))
        if place < limit:
            # Copies: a batch may be a view that would keep a larger piece alive.
            kept[place : place + 1] = [(inputs.clone(), targets.clone())]
    return kept


def sample_examples(batches: Iterable[Batch], limit: int, generator: torch.Generator) -> list[Batch]:
    """Return at most `limit` examples as batches of one, uniform, in one pass; places are drawn a batch at a time."""
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


def _count(batches: Iterable[object]) -> int | None:
    try:
        return len(batches)  # type: ignore[arg-type]
    except TypeError:  # a generator, or a loader over a stream
        return None


def measure_true_logit(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the logit of the true class, averaged over the batch."""
    if outputs.ndim != 2 or targets.ndim != 1 or targets.is_floating_point():
        raise ValueError(
            '`target="logit"` needs outputs of shape (batch, classes) and class indices, '
            f"got outputs of shape {tuple(outputs.shape)}, targets of shape {tuple(targets.shape)} and {targets.dtype}"
        )
    if not bool(((targets >= 0) & (targets < outputs.shape[1])).all()):
        raise ValueError(
            f'`target="logit"` needs class indices below the {outputs.shape[1]} outputs, '
            f"got {int(targets.min())} to {int(targets.max())}"
        )
    return take_true_logit(outputs, targets)


def take_true_logit(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the logit of classes that are known to be there."""
    # No gather: on a device, an index that is out of range would end the process.
    is_true = targets[:, None] == torch.arange(outputs.shape[1], device=outputs.device)
    return (outputs * is_true).sum(1).mean()


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


def _read_pair(batch: object) -> Batch:
    got = type(batch).__name__
    if isinstance(batch, (tuple, list)):
        if len(batch) == 2 and all(isinstance(part, Tensor) for part in batch):
            return batch[0], batch[1]
        got = f"{got} of {', '.join(type(part).__name__ for part in batch)}"
    raise ValueError(f"`batches` must yield (inputs, targets) pairs of tensors, got {got}")
