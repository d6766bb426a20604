"""transformers: an optimizer with a Gate or DriftBound for its Trainer, and a callback that consolidates."""

from typing import Any

from torch import nn
from torch.optim import Optimizer

from sfao.batches import Objective, read_model_loss
from sfao.checks import explain_missing
from sfao.drift_bound import DriftBound
from sfao.gate import Gate
from sfao.integrations.attached import Attached, attach, check_arguments, consolidate_task, find_attached

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise explain_missing(error, "transformers", "sfao.integrations.transformers", "transformers") from None


def create_gated_optimizer(
    model: nn.Module, args: TrainingArguments, gate: Gate | None = None, **options: Any
) -> Optimizer:
    """Return the optimizer that the Trainer makes, with a :class:`sfao.Gate` attached before it loads a checkpoint.

    Args:
        model: the model.
        args: of the Trainer.
        gate: the gate of the tasks before; by default a new one over all trained parameters.
        options: of the gate that is made.

    Example::

        >>> optimizer = create_gated_optimizer(model, args)
        >>> Trainer(model, args, optimizers=(optimizer, None), callbacks=[ConsolidateCallback()], ...).train()
    """
    return _create(Gate, model, args, gate, options)


def create_bounded_optimizer(
    model: nn.Module, args: TrainingArguments, bound: DriftBound | None = None, **options: Any
) -> Optimizer:
    """Return the optimizer that the Trainer makes, with a :class:`sfao.DriftBound`: see `create_gated_optimizer`."""
    return _create(DriftBound, model, args, bound, options)


def _create(
    kind: type[Attached], model: nn.Module, args: TrainingArguments, attached: object, options: dict[str, Any]
) -> Optimizer:
    check_arguments(kind, attached, options, None)
    optimizer: Optimizer = Trainer(model=model, args=args).create_optimizer()
    attach(kind, attached, optimizer, model, options)
    return optimizer


class ConsolidateCallback(TrainerCallback):
    """Consolidates a task at the end of its training, with the gate or bound of the Trainer's optimizer.

    Args:
        objective: called as ``objective(model, batch)``; by default the loss that the model returns.
        limit: how many gradients a gate stores at most.
    """

    def __init__(self, *, objective: Objective | None = None, limit: int | None = None) -> None:
        self.attached: Any = None
        self._objective: Objective = objective or read_model_loss
        self._limit = limit

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Find the gate or bound; refuse to train without one."""
        self.attached = find_attached(given["optimizer"])
        if self.attached is None:
            raise ValueError(
                "ConsolidateCallback needs an optimizer with a Gate or DriftBound, got one without; "
                "Trainer(optimizers=(create_gated_optimizer(model, args), None), ...) gives it one"
            )

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Consolidate the task that has been trained."""
        if self.attached is not None:
            batches = given["train_dataloader"]
            consolidate_task(given["optimizer"], given["model"], batches, self._objective, self._limit)
