"""Lightning: a callback that gates every `fit`, remembers its task, and goes on with the next."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from sfao.checks import explain_missing
from sfao.integrations.gates import check_one_source, place_gate, remember_task
from sfao.optim._attachment import STATE_KEY
from sfao.optim._consolidation.objectives import Objective
from sfao.optim.gate import Gate

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
except ImportError as error:
    raise explain_missing(error, "lightning", "sfao.integrations.lightning", "lightning") from None


class GateCallback(Callback):
    """Gates the optimizer of every `fit` of a LightningModule, and remembers the task at its end.

    One callback goes through all tasks, each with a `fit` of its own, whatever Trainer and strategy that has::

        callback = GateCallback()
        for task in tasks:
            Trainer(max_epochs=1, callbacks=[callback]).fit(model, task)

    `configure_optimizers` may return any optimizer, or :class:`sfao.SFAO`. Checkpoints have the memory, and
    `fit(ckpt_path=...)` goes on with it.

    Args:
        gate: a gate to go on with; by default one over all that the optimizer optimizes is made at the first `fit`.
        objective: called as ``objective(module, batch)``, see :meth:`sfao.Gate.consolidate`; by default the loss that
            `training_step` returns, whose logging is muted meanwhile.
        consolidate: remember the task at the end of a `fit`; otherwise call `callback.gate.consolidate` yourself.
        limit: how many examples or gradients to take at most.
        options: of the gate that is made, see :class:`sfao.Gate`.
    """

    def __init__(
        self,
        gate: Gate | None = None,
        *,
        objective: Objective | None = None,
        consolidate: bool = True,
        limit: int | None = None,
        **options: Any,
    ) -> None:
        check_one_source(gate, options)
        self.gate = gate
        self._objective = objective or measure_training_loss
        self._consolidate = consolidate
        self._limit = limit
        self._options = options
        self._loaded: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the gate in front of the optimizer, before a checkpoint is read into it."""
        optimizer = find_optimizer(trainer)
        if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
            raise ValueError(
                "`strategy` must not start processes that end with `fit`, as ddp_spawn, ddp_fork and ddp_notebook do: "
                'the memory would end with them; strategy="ddp" keeps it'
            )
        if self._consolidate and self._objective is measure_training_loss and not pl_module.automatic_optimization:
            raise ValueError(
                "`objective` must be given for a module that optimizes manually, whose training_step moves it; "
                "GateCallback(objective=...) or consolidate=False"
            )
        if self._loaded is None:
            self.gate = place_gate(self.gate, optimizer, pl_module, self._options)
        elif self.gate is not None:
            self.gate.detach()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the gate go on from a checkpoint whose optimizers, read by now, do not have its state."""
        if self._loaded is not None:
            self.gate = place_gate(self.gate, find_optimizer(trainer), pl_module, self._options)
            self.gate.load_state_dict(self._loaded)
            self._loaded = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember the task that has been trained."""
        if self._consolidate and self.gate is not None and not trainer.fast_dev_run:
            remember_task(find_optimizer(trainer), pl_module, trainer.train_dataloader, self._objective, self._limit)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the gate beside the optimizers, unless their own states have it: some strategies save no more of them
        than they know."""
        states = checkpoint.get("optimizer_states", [])
        if self.gate is not None and not any(is_state_with_gate(state) for state in states):
            checkpoint[STATE_KEY] = self.gate.state_dict()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep the state of the gate until there is one to load it."""
        self._loaded = checkpoint.get(STATE_KEY)


def find_optimizer(trainer: Trainer) -> Optimizer:
    """Return the one optimizer of a trainer."""
    if len(trainer.optimizers) != 1:
        raise ValueError(f"GateCallback needs a module with one optimizer, got {len(trainer.optimizers)}")
    optimizer: Optimizer = trainer.optimizers[0]
    return optimizer


def is_state_with_gate(state: Mapping[str, Any]) -> bool:
    """Tell whether the saved state of an optimizer has that of its gate."""
    return STATE_KEY in state or "gate" in state


def measure_training_loss(module: LightningModule, batch: Any) -> Tensor:
    """Return the loss of `training_step`."""
    with mute_logging(module):
        result = module.training_step(batch, 0)
    loss = result["loss"] if isinstance(result, Mapping) else result
    if not isinstance(loss, Tensor):
        raise ValueError(f"`training_step` must return the loss, got {type(loss).__name__}; or give `objective`")
    return loss


@contextmanager
def mute_logging(module: LightningModule) -> Iterator[None]:
    """Let `self.log` do nothing: outside of the training loop Lightning refuses it."""
    names = ("log", "log_dict")
    for name in names:
        object.__setattr__(module, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for name in names:
            object.__delattr__(module, name)


__all__ = ["GateCallback"]
