"""Avalanche: plugins that attach a Gate or a DriftBound to a strategy's optimizer and consolidate every experience."""

from typing import Any, ClassVar

from torch import Tensor, nn
from torch.utils.data import DataLoader

from sfao.batches import Objective
from sfao.checks import explain_missing
from sfao.drift_bound import DriftBound
from sfao.gate import Gate
from sfao.integrations.attached import Attached, attach, check_arguments, consolidate_task

try:
    from avalanche.core import SupervisedPlugin
    from avalanche.models.utils import avalanche_forward
except ImportError as error:
    raise explain_missing(error, "avalanche", "sfao.integrations.avalanche", "avalanche") from None


class GatePlugin(SupervisedPlugin):
    """Attaches a :class:`sfao.Gate` to the optimizer of a strategy, and consolidates each experience after training.

    Heads that grow (`IncrementalClassifier`, `MultiHeadClassifier`) are followed before every experience, and models
    that take task labels get them.

    Args:
        attached: a gate to continue with; by default one over all parameters is made at the first experience.
        limit: how many gradients to store at most.
        options: of the gate that is made.

    Example::

        >>> strategy = Naive(model=model, optimizer=SGD(model.parameters(), lr=0.1), plugins=[GatePlugin()], ...)
    """

    kind: ClassVar[type[Attached]] = Gate

    def __init__(self, attached: Attached | None = None, *, limit: int | None = None, **options: Any) -> None:
        super().__init__()
        check_arguments(self.kind, attached, options, limit)
        self.attached: Any = attached
        self._limit = limit
        self._options = options

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Follow the model, which Avalanche has just adapted to the experience."""
        self.attached = attach(self.kind, self.attached, strategy.optimizer, strategy.model, self._options)

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Consolidate the experience; of one that comes in parts, the whole after the last."""
        experience = strategy.experience
        if not getattr(experience, "is_last_subexp", True):
            return
        whole = getattr(experience, "origin_experience", experience)
        collate = getattr(whole.dataset, "collate_fn", None)
        loader = DataLoader(whole.dataset, batch_size=strategy.train_mb_size, collate_fn=collate)
        consolidate_task(strategy.optimizer, strategy.model, loader, make_objective(strategy), self._limit)


class DriftBoundPlugin(GatePlugin):
    """The same with a :class:`sfao.DriftBound` and its options."""

    kind = DriftBound


def make_objective(strategy: Any) -> Objective:
    """Return the loss of a strategy as an objective, with task labels for models that take them."""

    def measure_loss(model: nn.Module, batch: Any) -> Tensor:
        loss: Tensor = strategy._criterion(avalanche_forward(model, batch[0], batch[-1]), batch[1])
        return loss

    return measure_loss
