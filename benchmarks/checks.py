"""Protocols of other papers that need more than settings, for the checks in docs/baselines.md. Used by name:

sfao run benchmarks.checks:permuted_told --method trgp --set scenario=task ...
sfao run split-mnist --method benchmarks.checks:LwFWithAdam ...
"""

from collections.abc import Sequence
from typing import Any

import torch

from sfao.lab.data.dataset import Dataset
from sfao.lab.methods.lwf import LwF
from sfao.lab.methods.method import Method
from sfao.lab.streams.permuted import permute
from sfao.lab.streams.stream import Benchmark, Stream, Task, TaskSplit
from sfao.lab.streams.suite import MNIST


def permute_told(
    dataset: Dataset,
    *,
    tasks: int | None,
    scenario: str,
    seed: int,
    order: str | Sequence[int] | None,
    validation: float,
) -> Stream:
    """Make Permuted MNIST as TRGP's authors do: one head for all tasks, although the model is told the task."""
    return permute(dataset, tasks=tasks, scenario="domain", seed=seed, order=order, validation=validation)


permuted_told = Benchmark("mnist", TaskSplit("permuted, one head", permute_told), 10, MNIST)


class KeptAdam(torch.optim.Adam):
    """Adam that goes on from task to task."""

    def drop_momentum(self) -> None:
        """Keep it: the authors have one optimizer for all tasks."""


class AdamAlone(Method):
    """Adam, task after task."""

    name = "adam"

    def make_optimizer(self) -> Any:
        return KeptAdam(self.model.parameters(), lr=self.training.lr)


class LwFWithAdam(AdamAlone, LwF):
    """LwF as van de Ven and Tolias (2019) compare it: after n tasks, the old answers weigh n times the new labels.

    They weigh 1 - 1/(n + 1) and 1/(n + 1), which for Adam, whose steps do not depend on the loss's scale, is the same.
    """

    name = "lwf-adam"

    def begin_task(self, number: int, task: Task) -> None:
        self._weigh(number)

    def _weigh(self, number: float) -> None:
        self.options = self.options.model_copy(update={"strength": float(number)})

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "strength": self.options.strength}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._weigh(state["strength"])
