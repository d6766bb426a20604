"""Gradients of a finished task, taken without disturbing the model: what `consolidate` stores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sfao.gating.options import check_choice, check_count

TARGETS = ("loss", "logit")
UNITS = ("batch", "example")

Loss = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]


def harvest(
    model: nn.Module, batches: Iterable[Batch], objective: Loss, parameters: Sequence[Tensor]
) -> Iterator[list[Tensor | None]]:
    """The gradient of objective(model(inputs), targets) for each batch, None where a parameter has no part.

    The model is in eval mode meanwhile, so BatchNorm statistics stay, and `.grad` is not touched.
    """
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    device = parameters[0].device
    with eval_mode(model), torch.enable_grad():
        for inputs, targets in batches:
            value = objective(model(inputs.to(device)), targets.to(device))
            found = iter(torch.autograd.grad(value, trainable, allow_unused=True))
            yield [next(found) if parameter.requires_grad else None for parameter in parameters]


def check_harvest(target: str, per: str | None, limit: int | None) -> None:
    """Raise a ValueError that names the first argument of `consolidate` that breaks its rule."""
    check_choice("target", target, TARGETS)
    if per is not None:
        check_choice("per", per, UNITS)
    if limit is not None:
        check_count("limit", limit)


def true_logit(outputs: Tensor, targets: Tensor) -> Tensor:
    """The logit of the true class, averaged over the batch."""
    if outputs.ndim != 2 or targets.is_floating_point():
        raise ValueError(
            '`target="logit"` needs outputs of shape (batch, classes) and class indices, '
            f"got outputs of shape {tuple(outputs.shape)} and targets of dtype {targets.dtype}"
        )
    return outputs.gather(1, targets[:, None]).mean()


def as_pairs(batches: Iterable[object]) -> Iterator[Batch]:
    for batch in batches:
        if not (isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(b, Tensor) for b in batch)):
            raise ValueError(f"`batches` must yield (inputs, targets) pairs of tensors, got {type(batch).__name__}")
        yield batch[0], batch[1]


def examples(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same data as batches of one."""
    for inputs, targets in batches:
        yield from zip(torch.split(inputs, 1), torch.split(targets, 1), strict=True)


def sample(batches: Iterable[Batch], limit: int, generator: torch.Generator) -> list[Batch]:
    """At most `limit` of the batches, uniform, in one pass over them (reservoir sampling)."""
    kept: list[Batch] = []
    for seen, batch in enumerate(batches):
        if len(kept) < limit:
            kept.append(batch)
        elif (place := int(torch.randint(seen + 1, (), generator=generator))) < limit:
            kept[place] = batch
    return kept


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Every module in eval mode for a while, then each back in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
