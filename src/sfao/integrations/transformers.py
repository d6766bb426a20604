"""transformers: an optimizer with a gate for its Trainer, and a callback that remembers what has been trained."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from sfao.checks import explain_missing
from sfao.integrations.gates import check_one_source, find_gate, place_gate, remember_task
from sfao.optim._consolidation.objectives import Objective
from sfao.optim.gate import Gate

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise explain_missing(error, "transformers", "sfao.integrations.transformers", "transformers") from None


def create_gated_optimizer(
    model: nn.Module, args: TrainingArguments, gate: Gate | None = None, **options: Any
) -> Optimizer:
    """Return the optimizer that `args` ask for, as the Trainer makes it, with a gate in front.

    The Trainer reads a checkpoint into its optimizer before it calls any callback, so the gate has to be there
    from the start::

        optimizer = create_gated_optimizer(model, args)
        Trainer(model, args, optimizers=(optimizer, None), callbacks=[GateCallback()], ...).train()

    Args:
        gate: the gate of the tasks before, which leaves their optimizer; by default a new one over all that is trained.
        options: of the gate that is made, see :class:`sfao.Gate`.
    """
    check_one_source(gate, options)
    optimizer: Optimizer = Trainer(model=model, args=args).create_optimizer()
    place_gate(gate, optimizer, model, options)
    return optimizer


class GateCallback(TrainerCallback):
    """Remembers a task at the end of its training, by the gate in front of the Trainer's optimizer.

    Args:
        objective: called as ``objective(model, batch)``, see :meth:`sfao.Gate.consolidate`; by default the loss that
            the model returns.
        limit: how many examples or gradients to take at most.
    """

    def __init__(self, *, objective: Objective | None = None, limit: int | None = None) -> None:
        self.gate: Gate | None = None
        self._objective = objective or measure_model_loss
        self._limit = limit

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Find the gate; refuse to train without one."""
        self.gate = find_gate(given["optimizer"])
        if self.gate is None:
            raise ValueError(
                "GateCallback needs an optimizer with a gate in front, got one without; "
                "Trainer(optimizers=(create_gated_optimizer(model, args), None), ...) gives it one"
            )

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Remember the task that has been trained."""
        if self.gate is not None:
            batches = given["train_dataloader"]
            remember_task(given["optimizer"], given["model"], batches, self._objective, self._limit)


def measure_model_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the loss that a model of transformers gives for a batch with labels."""
    if not isinstance(batch, Mapping):
        raise ValueError(f"a batch must be a mapping of the model's arguments, got {type(batch).__name__}")
    loss = model(**batch).loss
    if loss is None:
        raise ValueError(f"a batch must have labels for the model to return a loss, got {', '.join(batch)}")
    measured: Tensor = loss
    return measured


__all__ = ["GateCallback", "create_gated_optimizer"]
