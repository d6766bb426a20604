"""Two ways to watch forgetting while a task is learnt: measured on held-out examples, or predicted from the gate."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from statistics import fmean, median
from typing import Any

import torch

from sfao.lab.methods import Method
from sfao.lab.run.evaluation import evaluate
from sfao.lab.streams.stream import Stream

#: Intervals that must have been seen before another one can be called unusual.
FEWEST_INTERVALS = 3
#: A risk smaller than this share of the update's length is rounding.
SMALLEST_RISK = 1e-4


def predict_interference(method: Method) -> float:
    """Return learning rate times interference risk of the last step; 0 where the risk is rounding."""
    risk, length = method.measure_risk()
    return float(method.optimizer.param_groups[0]["lr"] * risk) if risk > SMALLEST_RISK * length else 0.0


@dataclass(frozen=True)
class Rise:
    """A rise that is too sharp: the reason in words, and its numbers."""

    reason: str
    values: dict[str, float]


class ForgettingWatch(ABC):
    """Looks at every step, and says at a check whether forgetting has risen too sharply since the last good one."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    @abstractmethod
    def begin_task(self, number: int) -> None:
        """Start anew: `number` tasks have been learnt before."""

    @abstractmethod
    def see_step(self) -> None:
        """Look at the step that has just been made."""

    @abstractmethod
    def find_rise(self) -> Rise | None:
        """Return the rise since the last good check if it is too sharp; otherwise this check is a good one."""

    @abstractmethod
    def go_back(self) -> None:
        """Drop what was seen since the last good check."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class MeasuredForgetting(ForgettingWatch):
    """The accuracy that past tasks have lost since this one began, on their validation examples.

    A task that has gained counts as one that lost nothing; the mean over the past tasks may rise by `limit` between
    two checks.
    """

    def __init__(self, limit: float, method: Method, stream: Stream, device: torch.device) -> None:
        super().__init__(limit)
        self._method, self._stream, self._device = method, stream, device
        self._start: list[float] = []
        self._forgetting = 0.0

    def begin_task(self, number: int) -> None:
        self._start = self._measure(number)
        self._forgetting = 0.0

    def see_step(self) -> None:
        """Nothing: only checks measure."""

    def find_rise(self) -> Rise | None:
        accuracies = self._measure(len(self._start))
        found = fmean(max(0.0, start - now) for start, now in zip(self._start, accuracies, strict=True))
        before = self._forgetting
        if found - before <= self.limit:
            self._forgetting = found
            return None
        return Rise(
            f"forgetting rose from {before:.3f} to {found:.3f}, by more than {self.limit:g}",
            {"before": before, "now": found, "limit": self.limit},
        )

    def go_back(self) -> None:
        """Nothing: a bad check has changed nothing."""

    def _measure(self, tasks: int) -> list[float]:
        return evaluate(self._method, self._stream.tasks[:tasks], "validation", self._device)

    def state_dict(self) -> dict[str, Any]:
        return {"start": self._start, "forgetting": self._forgetting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._start, self._forgetting = list(state["start"]), state["forgetting"]


class PredictedForgetting(ForgettingWatch):
    """The sum of learning rate times interference risk over the steps of an interval.

    To first order that is at most how far a layer's outputs for past inputs moved, relatively, or how far the updates
    went against a remembered direction. It may be `limit` times the median of the intervals before in which the gate
    let anything through, of all tasks, undone ones included.
    """

    def __init__(self, limit: float, method: Method) -> None:
        super().__init__(limit)
        self._method = method
        self._sum = 0.0
        self._intervals: list[float] = []

    def begin_task(self, number: int) -> None:
        self._sum = 0.0

    def see_step(self) -> None:
        self._sum += predict_interference(self._method)

    def find_rise(self) -> Rise | None:
        found, before = self._sum, self._intervals
        self._sum = 0.0
        if found > 0:
            self._intervals = [*before, found]
        usual = median(before) if len(before) >= FEWEST_INTERVALS else inf
        if found <= self.limit * usual:
            return None
        return Rise(
            f"the predicted interference was {found:.3g}, more than {self.limit:g} times the usual {usual:.3g}",
            {"before": usual, "now": found, "limit": self.limit * usual},
        )

    def go_back(self) -> None:
        self._sum = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self._sum, "intervals": self._intervals}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sum, self._intervals = state["sum"], list(state["intervals"])
