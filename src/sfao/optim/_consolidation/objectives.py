"""Objectives: the value of a model on a batch whose gradients are stored, or whose inputs are looked at."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sfao.optim._consolidation.trees import describe, find_tensors

#: loss(outputs, targets)
Loss = Callable[[Tensor, Tensor], Tensor]
#: objective(model, batch): one number, or one for each example
Objective = Callable[[nn.Module, Any], Tensor]

#: Targets that count for nothing, as in torch's cross entropy.
IGNORED = -100


class PairLoss:
    """The loss of (inputs, targets)."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, targets = batch
        return self._loss(model(inputs), targets)


class OwnObjective:
    """An objective of the user's, for batches that only it can read; several values are averaged."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        try:
            value = self._objective(model, batch)
        except Exception as error:
            raise ValueError(_explain("`objective` must be able to read the batches", batch, error)) from error
        if not isinstance(value, Tensor) or value.ndim > 1 or not value.is_floating_point():
            got = f"a tensor of shape {tuple(value.shape)} and {value.dtype}" if isinstance(value, Tensor) else None
            raise ValueError(
                "`objective` must return one number or one for each example, as a floating tensor, "
                f"got {got or type(value).__name__}"
            )
        if torch.is_grad_enabled() and not value.requires_grad:
            raise ValueError("`objective` must return a value that depends on the model's parameters, got a constant")
        return value.mean()


class TrueLogit:
    """The logit of the true class, averaged over the batch and, of sequences, over all places that are not ignored."""

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, targets = batch
        outputs = model(inputs)
        if outputs.ndim not in (2, 3) or targets.shape != outputs.shape[:-1] or targets.is_floating_point():
            raise ValueError(
                '`target="logit"` needs outputs of shape (batch, classes) or (batch, time, classes) and class indices, '
                f"got outputs of shape {tuple(outputs.shape)}, targets of shape {tuple(targets.shape)} "
                f"and {targets.dtype}"
            )
        if not self.knows(targets, outputs.shape[-1]):
            raise ValueError(
                f'`target="logit"` needs class indices below the {outputs.shape[-1]} outputs, '
                f"got {int(targets.min())} to {int(targets.max())}"
            )
        return _average_true_logits(outputs, targets)

    def unchecked(self, model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        """Return the same without looking at the targets, which vmap does not allow, and the number of classes."""
        inputs, targets = batch
        outputs = model(inputs)
        return _average_true_logits(outputs, targets), outputs.shape[-1]

    @staticmethod
    def knows(targets: Tensor, classes: int) -> bool:
        """Tell whether all targets are classes, or ignored."""
        return bool((((targets >= 0) & (targets < classes)) | (targets == IGNORED)).all())


def _average_true_logits(outputs: Tensor, targets: Tensor) -> Tensor:
    # No gather: on a device, an index that is out of range would end the process.
    is_true = targets[..., None] == torch.arange(outputs.shape[-1], device=outputs.device)
    return (outputs * is_true).sum() / (targets != IGNORED).sum().clamp_min(1)


def call_model(model: nn.Module, batch: Any) -> None:
    """Let the inputs of a batch go through the model: the first of a pair, or a mapping of arguments by name."""
    if not isinstance(batch, Mapping):
        model(batch[0])
        return
    try:
        model(**batch)
    except TypeError as error:
        start = "`batches` of mappings must hold the model's arguments by name; for others give `objective`"
        raise ValueError(_explain(start, batch, error)) from error


def find_dtype(model: nn.Module) -> torch.dtype | None:
    """Return the dtype of the model's first floating parameter, None if it has none."""
    return next((parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()), None)


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside torch.compile and DistributedDataParallel.

    No call inside the one can be seen, and the other talks to other processes at every call.
    """
    inner = getattr(model, "_orig_mod", None)
    if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        inner = model.module
    return unwrap(inner) if isinstance(inner, nn.Module) else model


def _explain(rule: str, batch: Any, error: Exception) -> str:
    reason = str(error).strip().partition("\n")[0]
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in find_tensors(batch)[:4])
    return f"{rule}, but a {describe(batch)} (shapes {shapes or 'none'}) failed: {type(error).__name__}: {reason}"
