"""Gradients of a finished task, taken without disturbing the model: what `consolidate` stores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sfao.checks import check_choice, check_count

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
    if not trainable:
        raise ValueError("at least one gated parameter must require gradients to consolidate, got none")
    device = parameters[0].device
    with eval_mode(model), torch.enable_grad():
        for inputs, targets in batches:
            value = objective(model(inputs.to(device)), targets.to(device))
            if value.ndim != 0:
                raise ValueError(f"`loss` must return one number, got a tensor of shape {tuple(value.shape)}")
            found = iter(torch.autograd.grad(value, trainable, allow_unused=True))
            yield [next(found) if parameter.requires_grad else None for parameter in parameters]


def check_harvest(target: str, per: str | None, limit: int | None) -> None:
    """Raise a ValueError that names the first argument of `consolidate` that breaks its rule."""
    check_choice("target", target, TARGETS)
    if per is not None:
        check_choice("per", per, UNITS)
    if limit is not None:
        check_count("limit", limit)


def harvest_unit(target: str, per: str | None) -> str:
    """What one gradient is taken of: batches for the loss and examples for logits, unless told otherwise."""
    return per if per is not None else {"loss": "batch", "logit": "example"}[target]


def true_logit(outputs: Tensor, targets: Tensor) -> Tensor:
    """The logit of the true class, averaged over the batch."""
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
    return logit_of_class(outputs, targets)


def logit_of_class(outputs: Tensor, targets: Tensor) -> Tensor:
    """The same, unchecked, for classes that are known to be there."""
    # No gather: on a device, an index that is out of range would end the process.
    is_true = targets[:, None] == torch.arange(outputs.shape[1], device=outputs.device)
    return (outputs * is_true).sum(1).mean()


def as_pairs(batches: Iterable[object]) -> Iterator[Batch]:
    for batch in batches:
        inputs, targets = _pair(batch)
        if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
            raise ValueError(
                "`batches` must yield as many targets as inputs, "
                f"got inputs of shape {tuple(inputs.shape)} and targets of shape {tuple(targets.shape)}"
            )
        yield inputs, targets


def _pair(batch: object) -> Batch:
    got = type(batch).__name__
    if isinstance(batch, (tuple, list)):
        if len(batch) == 2 and all(isinstance(part, Tensor) for part in batch):
            return batch[0], batch[1]
        got = f"{got} of {', '.join(type(part).__name__ for part in batch)}"
    raise ValueError(f"`batches` must yield (inputs, targets) pairs of tensors, got {got}")


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
