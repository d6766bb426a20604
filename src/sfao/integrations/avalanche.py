"""Avalanche: a plugin that gates a strategy's optimizer and remembers every experience."""

from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader

from sfao.checks import explain_missing
from sfao.integrations.gates import check_one_source, place_gate, remember_task
from sfao.optim._consolidation.objectives import Objective
from sfao.optim.gate import Gate

try:
    from avalanche.core import SupervisedPlugin
    from avalanche.models.utils import avalanche_forward
except ImportError as error:
    raise explain_missing(error, "avalanche", "sfao.integrations.avalanche", "avalanche") from None


class SFAOPlugin(SupervisedPlugin):
    """Puts a gate in front of the optimizer of a strategy, and remembers each experience after it was trained::

        strategy = Naive(model=model, optimizer=SGD(model.parameters(), lr=0.1), plugins=[SFAOPlugin()], ...)

    Heads that grow (`IncrementalClassifier`, `MultiHeadClassifier`) are followed before every experience, and models
    that take task labels get them.

    Args:
        gate: a gate to go on with; by default one over all parameters is made at the first experience.
        limit: how many examples or gradients to take at most.
        options: of the gate that is made, see :class:`sfao.Gate`.
    """

    def __init__(self, gate: Gate | None = None, *, limit: int | None = None, **options: Any) -> None:
        super().__init__()
        check_one_source(gate, options)
        self.gate = gate
        self._limit = limit
        self._options = options

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Let the gate follow the model, which Avalanche has just adapted to the experience."""
        self.gate = place_gate(self.gate, strategy.optimizer, strategy.model, self._options)

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Remember the experience; of one that comes in parts, the whole after the last."""
        experience = strategy.experience
        if not getattr(experience, "is_last_subexp", True):
            return
        whole = getattr(experience, "origin_experience", experience)
        loader = make_loader(whole.dataset, strategy.train_mb_size)
        remember_task(strategy.optimizer, strategy.model, loader, make_objective(strategy), self._limit)


def make_loader(dataset: Any, batch_size: int) -> DataLoader[Any]:
    """Return the examples of an experience in their order, as (inputs, ..., targets, task labels)."""
    return DataLoader(dataset, batch_size=batch_size, collate_fn=getattr(dataset, "collate_fn", None))


def make_objective(strategy: Any) -> Objective:
    """Return the loss of a strategy as an objective, with task labels for models that take them."""

    def measure_loss(model: nn.Module, batch: Any) -> Tensor:
        loss: Tensor = strategy._criterion(avalanche_forward(model, batch[0], batch[-1]), batch[1])
        return loss

    return measure_loss


__all__ = ["SFAOPlugin"]
