"""Batches of a finished task: reading them, drawing examples, and evaluating a loss on them.

A batch is an (inputs, targets) pair, a mapping of the model's arguments by name, or anything that the user's
`objective` can read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

Batch = Any
#: loss(outputs, targets)
Loss = Callable[[Any, Any], Tensor]
#: objective(model, batch): one number, or one per example
Objective = Callable[[nn.Module, Any], Tensor]

#: Names that wrappers give to what they wrap: torch.compile, FSDP and activation checkpointing.
WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
#: Targets that don't count, as in torch's cross entropy.
IGNORED = -100


# -- Objectives ----------------------------------------------------------------------------------------


def check_batches(batches: object, loss: object, objective: object) -> None:
    """Raise a ValueError if the arguments of `consolidate` are not batches, a loss and an objective."""
    if isinstance(batches, (nn.Module, Tensor)) or not isinstance(batches, Iterable):
        raise ValueError(
            f"`batches` must be an iterable of batches, got a {type(batches).__name__}; call consolidate(batches, loss)"
        )
    for name, value in (("loss", loss), ("objective", objective)):
        if value is not None and not callable(value):
            raise ValueError(
                f"`{name}` must be callable, got a {type(value).__name__}; call consolidate(batches, loss)"
            )
    if loss is not None and objective is not None:
        raise ValueError("`objective` replaces `loss`; give one of the two, got both")


def make_objective(loss: Loss | None, objective: Objective | None) -> Objective:
    """Return objective(model, batch) for a loss, for the user's own objective, or for models that return a loss."""

    def evaluate_pair(model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = read_pair(batch)
        return check_value("loss", loss(model(inputs), targets), most_dims=0)  # type: ignore[misc]

    def evaluate_objective(model: nn.Module, batch: Batch) -> Tensor:
        return check_value("objective", objective(model, batch), most_dims=1).mean()  # type: ignore[misc]

    if objective is not None:
        return evaluate_objective
    return read_model_loss if loss is None else evaluate_pair


def check_value(name: str, value: object, most_dims: int) -> Tensor:
    """Return the value of a loss or objective; raise a ValueError if nothing can be learned from it."""
    if not isinstance(value, Tensor) or value.ndim > most_dims or not value.is_floating_point():
        rule = "a scalar tensor" if most_dims == 0 else "one number or one per example, as a floating tensor"
        raise ValueError(f"`{name}` must return {rule}, got {describe(value)}")
    if torch.is_grad_enabled() and not value.requires_grad:
        raise ValueError(f"`{name}` must return a value that depends on the model's parameters, got a constant")
    return value


def read_model_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return `model(**batch).loss`, as the models of transformers do."""
    if not isinstance(batch, Mapping):
        raise ValueError(f"`loss` must be given for batches that aren't mappings, got {describe(batch)}")
    outputs = model(**batch)
    value = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if not isinstance(value, Tensor):
        raise ValueError(
            f"`loss` or `objective` must be given for a model that returns no `.loss`, got {type(outputs).__name__}"
        )
    return value.mean()


def read_pair(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the inputs and targets of a batch; raise a ValueError if it isn't a pair."""
    is_pair = isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)
    if not is_pair:
        raise ValueError(
            f"`batches` must yield (inputs, targets) pairs of tensors, got {describe(batch)}; "
            "for other batches give `objective`"
        )
    inputs, targets = batch
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
        raise ValueError(
            "`batches` must yield as many targets as inputs, "
            f"got inputs of shape {tuple(inputs.shape)} and targets of shape {tuple(targets.shape)}"
        )
    return inputs, targets


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a model in eval mode; afterwards restore the mode of every module."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, is_training in modes:
            module.training = is_training


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside torch.compile, DistributedDataParallel and DataParallel."""
    is_parallel = isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel))
    inner = model.module if is_parallel else getattr(model, "_orig_mod", None)
    return unwrap(inner) if isinstance(inner, nn.Module) else model


def clean_name(path: str) -> str:
    """Return the path of a module without the names of wrappers."""
    return ".".join(part for part in path.split(".") if part not in WRAPPED) or "(root)"


# -- Drawing -------------------------------------------------------------------------------------------


def draw_examples(batches: Iterable[Batch], limit: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield batches with `limit` examples in total, drawn uniformly where the examples can be indexed.

    That is a sequence of batches, or a DataLoader over a map-style data set in sequential or random order. Of any
    other iterable, yield the first `limit` examples. A DataLoader moves the global random state.
    """
    if isinstance(batches, DataLoader) and _is_indexable(batches):
        chosen = draw_sorted(len(batches.dataset), limit, generator)  # type: ignore[arg-type]
        size = batches.batch_sampler.batch_size  # type: ignore[union-attr]
        chunks = [chosen[start : start + size] for start in range(0, len(chosen), size)]
        batches = DataLoader(batches.dataset, batch_sampler=chunks, collate_fn=batches.collate_fn)
    elif isinstance(batches, Sequence):
        batches = _draw_from_sequence(batches, limit, generator)
    remaining = limit
    for batch in batches:
        count = count_examples(batch)
        if count is not None and count > remaining:
            batch, count = take(batch, torch.arange(remaining)), remaining
        yield batch
        remaining -= measure_size(batch) if count is None else count
        if remaining <= 0:
            break


def _is_indexable(loader: DataLoader[Any]) -> bool:
    """Return True if the loader goes over all examples of a map-style data set."""
    if isinstance(loader.dataset, IterableDataset) or type(loader.batch_sampler) is not BatchSampler:
        return False
    return type(loader.batch_sampler.sampler) in (SequentialSampler, RandomSampler)


def _draw_from_sequence(batches: Sequence[Batch], limit: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield drawn examples of each batch; if there are batches that can't be sliced, draw whole ones."""
    counts = [count_examples(batch) for batch in batches]
    if None in counts:
        order = torch.randperm(len(batches), generator=generator, device="cpu").tolist()
        yield from (batches[number] for number in order)
        return
    starts = torch.tensor([0, *counts], device="cpu").cumsum(0)
    chosen = torch.tensor(draw_sorted(int(starts[-1]), limit, generator), dtype=torch.int64, device="cpu")
    sizes = torch.searchsorted(chosen, starts).diff().tolist()
    for batch, start, count, own in zip(batches, starts[:-1], counts, chosen.split(sizes), strict=True):
        if len(own):
            yield batch if len(own) == count else take(batch, own - start)


def draw_sorted(count: int, limit: int, generator: torch.Generator) -> list[int]:
    """Return `limit` different numbers below `count`, or all of them, in order."""
    drawn = torch.randperm(count, generator=generator, device="cpu")[:limit]
    found: list[int] = drawn.sort().values.tolist()
    return found


# -- Tensors inside a batch ----------------------------------------------------------------------------


def map_tensors(change: Callable[..., Any], batch: Batch) -> Batch:
    """Return the batch with `change` applied to every tensor.

    Tensors are found in tuples, lists and mappings. Anything else with a method `to` counts as one.
    """
    if isinstance(batch, Mapping):
        return type(batch)({key: map_tensors(change, part) for key, part in batch.items()})  # type: ignore[call-arg]
    if isinstance(batch, (tuple, list)):
        parts = [map_tensors(change, part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return change(batch) if callable(getattr(batch, "to", None)) else batch


def find_leaves(batch: Batch) -> Iterator[Any]:
    """Yield the tensors inside a batch and everything else that isn't a container."""
    if isinstance(batch, (tuple, list, Mapping)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from find_leaves(part)
    else:
        yield batch


def to_model(batch: Batch, model: nn.Module) -> Batch:
    """Return the batch on the device of the model, with floating tensors in its dtype."""
    first = next(model.parameters())
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)

    def move(value: Any) -> Any:
        is_floating = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(first.device, dtype) if is_floating else value.to(first.device)

    return map_tensors(move, batch)


def count_examples(batch: Batch) -> int | None:
    """Return the length that all tensors of the batch share; None if the batch can't be sliced."""
    lengths = {len(leaf) if isinstance(leaf, Tensor) and leaf.ndim else None for leaf in find_leaves(batch)}
    return lengths.pop() if len(lengths) == 1 else None


def measure_size(batch: Batch) -> int:
    """Return the length of the first tensor that has one: about how many examples a batch holds."""
    return next((len(leaf) for leaf in find_leaves(batch) if isinstance(leaf, Tensor) and leaf.ndim), 1)


def take(batch: Batch, index: Tensor) -> Batch:
    """Return a copy of the examples of `index`."""
    return map_tensors(lambda tensor: tensor.index_select(0, index.to(tensor.device)), batch)


def describe(value: object) -> str:
    """Return the kind of a batch or value in a few words."""
    kind = type(value).__name__
    if isinstance(value, Tensor):
        return f"{kind} of shape {tuple(value.shape)} and {value.dtype}"
    if isinstance(value, Mapping):
        return f"{kind} of {', '.join(map(str, value))}"
    if isinstance(value, (tuple, list)):
        return f"{kind} of {', '.join(type(part).__name__ for part in value[:4])}{', ...' * (len(value) > 4)}"
    return kind
