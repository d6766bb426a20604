"""Learning-rate schedules within a task, and early stopping on validation data.

`cosine` decreases the learning rate over the steps of a task to 0, as torch's CosineAnnealingLR. `plateau` is that of
the GPM authors' code (Saha et al. 2021): once the validation loss has not improved for `lr_patience` epochs, the
learning rate is divided by `lr_factor`; a task ends when it falls below `lr_min`. Both start anew with every task. A
task that plateau or early stopping watches ends with its best weights.
"""

from math import cos, inf, pi
from typing import Any

from torch import Tensor

from sfao.lab.methods import Method
from sfao.lab.run.config import RunConfig


class Schedule:
    """The learning rate of the task being learned, and its best weights so far."""

    def __init__(self, config: RunConfig, method: Method) -> None:
        self._config, self._method = config, method
        #: True if the loss on validation data must be given to `end_epoch`.
        self.needs_validation = config.schedule == "plateau" or config.early_stopping is not None
        self.begin_task()

    def begin_task(self) -> None:
        self._lr, self._best_loss = self._config.lr, inf
        self._best_weights: dict[str, Tensor] | None = None
        #: Epochs since the loss improved last, and since the learning rate was reduced after that.
        self._epochs_without, self._patience_used = 0, 0
        self._method.set_lr(self._lr)

    def begin_step(self, step: int, steps: int) -> None:
        """Set the learning rate of step `step`, from 0, of the `steps` of a task."""
        if self._config.schedule == "cosine":
            self._lr = self._config.lr * (1 + cos(pi * step / steps)) / 2
            self._method.set_lr(self._lr)

    def end_epoch(self, loss: float) -> None:
        """Keep the weights if the validation loss is the best so far; else reduce the learning rate in time."""
        if loss < self._best_loss:
            self._best_loss = loss
            self._best_weights = {name: value.clone() for name, value in self._method.model.state_dict().items()}
            self._epochs_without = self._patience_used = 0
            return
        self._epochs_without += 1
        self._patience_used += 1
        if self._config.schedule == "plateau" and self._patience_used >= self._config.lr_patience:
            self._lr /= self._config.lr_factor
            self._patience_used = 0
            self._method.set_lr(self._lr)

    @property
    def is_over(self) -> bool:
        """True if the task is to end before its last epoch."""
        if self._config.schedule == "plateau" and self._lr < self._config.lr_min:
            return True
        return self._config.early_stopping is not None and self._epochs_without >= self._config.early_stopping

    def end_task(self) -> None:
        """Load the best weights of the task."""
        if self._best_weights is not None:
            self._method.model.load_state_dict(self._best_weights)
            self._best_weights = None

    def state_dict(self) -> dict[str, Any]:
        return {
            "lr": self._lr,
            "best_loss": self._best_loss,
            "best_weights": self._best_weights,
            "epochs_without": self._epochs_without,
            "patience_used": self._patience_used,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._lr, self._best_loss, self._best_weights = state["lr"], state["best_loss"], state["best_weights"]
        self._epochs_without, self._patience_used = state["epochs_without"], state["patience_used"]
        self._method.set_lr(self._lr)


def make_schedule(config: RunConfig, method: Method) -> Schedule | None:
    """Return the schedule that the settings ask for; None for a constant learning rate without early stopping."""
    return None if config.schedule == "constant" and config.early_stopping is None else Schedule(config, method)
