"""Lightning: callbacks that attach a Gate or a DriftBound to every `fit`, and consolidate its task."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import Tensor
from torch.optim import Optimizer

from sfao.attachment import STATE_KEY, TASKS_KEY
from sfao.batches import Objective
from sfao.checks import explain_missing
from sfao.drift_bound import DriftBound
from sfao.gate import Gate
from sfao.integrations.attached import Attached, attach, check_arguments, consolidate_task

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
except ImportError as error:
    raise explain_missing(error, "lightning", "sfao.integrations.lightning", "lightning") from None


class GateCallback(Callback):
    """Attaches a :class:`sfao.Gate` to the optimizer of every `fit`, and consolidates the task at its end.

    Use one callback for all tasks, each with a `fit` of its own. `configure_optimizers` may return any optimizer, or
    :class:`sfao.SFAO`. Checkpoints hold the memory, and `fit(ckpt_path=...)` continues with it.

    Args:
        attached: a gate to continue with; by default one over all optimized parameters is made at the first `fit`.
        objective: called as ``objective(module, batch)``; by default the loss that `training_step` returns, with its
            logging muted.
        consolidate: consolidate at the end of a `fit`; otherwise call `callback.attached.consolidate` yourself.
        limit: how many gradients to store at most.
        options: of the gate that is made.

    Example::

        >>> callback = GateCallback()
        >>> for task in tasks:
        ...     Trainer(max_epochs=1, callbacks=[callback]).fit(model, task)
    """

    kind: ClassVar[type[Attached]] = Gate

    def __init__(
        self,
        attached: Attached | None = None,
        *,
        objective: Objective | None = None,
        consolidate: bool = True,
        limit: int | None = None,
        **options: Any,
    ) -> None:
        check_arguments(self.kind, attached, options, limit)
        self.attached: Any = attached
        self._objective = objective or measure_training_loss
        self._consolidate = consolidate
        self._limit = limit
        self._options = options
        self._loaded: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach before a checkpoint is loaded."""
        optimizer = find_optimizer(trainer)
        if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
            raise ValueError(
                "`strategy` must not start processes that end with `fit`, as ddp_spawn, ddp_fork and ddp_notebook do: "
                'the memory would end with them; strategy="ddp" keeps it'
            )
        if self._consolidate and self._objective is measure_training_loss and not pl_module.automatic_optimization:
            raise ValueError("`objective` must be given for a module that optimizes manually, or consolidate=False")
        if self._loaded is None:
            self.attached = attach(self.kind, self.attached, optimizer, pl_module, self._options)
        elif self.attached is not None:
            self.attached.detach()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Continue from a checkpoint whose optimizers, loaded by now, don't hold the memory."""
        if self._loaded is not None:
            optimizer = find_optimizer(trainer)
            for group in optimizer.param_groups:
                group.pop(TASKS_KEY, None)  # the memory isn't lost: it follows
            self.attached = attach(self.kind, self.attached, optimizer, pl_module, self._options)
            self.attached.load_state_dict(self._loaded)
            self._loaded = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Consolidate the task."""
        if self._consolidate and self.attached is not None and not trainer.fast_dev_run:
            optimizer, batches = find_optimizer(trainer), trainer.train_dataloader
            consolidate_task(optimizer, pl_module, batches, self._objective, self._limit)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the memory, unless it is in the state of the optimizer: some strategies drop it there."""
        states = checkpoint.get("optimizer_states", [])
        if self.attached is not None and not any(STATE_KEY in state for state in states):
            checkpoint[STATE_KEY] = self.attached.state_dict()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep the memory until training starts."""
        self._loaded = checkpoint.get(STATE_KEY)


class DriftBoundCallback(GateCallback):
    """The same with a :class:`sfao.DriftBound` and its options. Weights are projected before evaluation."""

    kind = DriftBound

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Project: `validation_step` may call parts of the module, which the bound doesn't see."""
        if self.attached is not None:
            self.attached.apply()

    on_test_start = on_predict_start = on_validation_start


def find_optimizer(trainer: Trainer) -> Optimizer:
    """Return the one optimizer of a trainer."""
    if len(trainer.optimizers) != 1:
        raise ValueError(f"the callback needs a module with one optimizer, got {len(trainer.optimizers)}")
    optimizer: Optimizer = trainer.optimizers[0]
    return optimizer


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
    for name in ("log", "log_dict"):
        object.__setattr__(module, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        del module.log, module.log_dict
