"""Backtracking: a run goes back to its last good point if a task makes the model forget past tasks too fast."""

import io
from math import inf
from statistics import fmean, median
from typing import Any, Protocol

import torch

from sfao.lab.methods import Method
from sfao.lab.run.config import GuardConfig
from sfao.lab.run.errors import SharpForgetting
from sfao.lab.run.evaluation import evaluate
from sfao.lab.streams.stream import Stream

#: Intervals that must have been seen before another one can be called unusual.
FEWEST_INTERVALS = 3
#: A risk smaller than this share of the update's length is rounding.
SMALLEST_RISK = 1e-4


class ForgettingWatch(Protocol):
    """Raises SharpForgetting at a check if forgetting has risen by more than `limit` since the last good check."""

    def begin_task(self, number: int) -> None: ...
    def see_step(self) -> None: ...
    def check(self) -> None: ...
    def go_back(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class MeasuredForgetting:
    """The accuracy that past tasks have lost since this one began, on validation data; a gain counts as 0."""

    def __init__(self, limit: float, method: Method, stream: Stream, device: torch.device) -> None:
        self.limit, self._method, self._stream, self._device = limit, method, stream, device
        self._start: list[float] = []
        self._forgetting = 0.0

    def begin_task(self, number: int) -> None:
        self._start, self._forgetting = self._measure(number), 0.0

    def see_step(self) -> None:
        """Do nothing: only checks measure."""

    def check(self) -> None:
        pairs = zip(self._start, self._measure(len(self._start)), strict=True)
        found, before = fmean(max(0.0, start - now) for start, now in pairs), self._forgetting
        if found - before > self.limit:
            raise SharpForgetting(
                f"forgetting rose from {before:.3f} to {found:.3f}, by more than {self.limit:g}",
                {"before": before, "now": found, "limit": self.limit},
            )
        self._forgetting = found

    def go_back(self) -> None:
        """Do nothing: a bad check changes nothing."""

    def _measure(self, tasks: int) -> list[float]:
        return evaluate(self._method, self._stream.tasks[:tasks], "validation", self._device)

    def state_dict(self) -> dict[str, Any]:
        return {"start": self._start, "forgetting": self._forgetting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._start, self._forgetting = list(state["start"]), state["forgetting"]


class PredictedForgetting:
    """The sum of learning rate times interference risk over the steps of an interval.

    To first order that is at most how far a layer's outputs for past inputs moved, relatively, or how far the updates
    went against a stored direction. The limit is a multiple of the median of all earlier intervals, of all tasks and
    undone ones included, in which the gate let anything through.
    """

    def __init__(self, limit: float, method: Method) -> None:
        self.limit, self._method = limit, method
        self._sum = 0.0
        self._intervals: list[float] = []

    def begin_task(self, number: int) -> None:
        self._sum = 0.0

    def see_step(self) -> None:
        risk, length = self._method.measure_risk()
        if risk > SMALLEST_RISK * length:
            self._sum += self._method.optimizer.param_groups[0]["lr"] * risk

    def check(self) -> None:
        found, before, self._sum = self._sum, self._intervals, 0.0
        if found > 0:
            self._intervals = [*before, found]
        usual = median(before) if len(before) >= FEWEST_INTERVALS else inf
        if found > self.limit * usual:
            raise SharpForgetting(
                f"the predicted interference was {found:.3g}, more than {self.limit:g} times the usual {usual:.3g}",
                {"before": usual, "now": found, "limit": self.limit * usual},
            )

    def go_back(self) -> None:
        self._sum = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self._sum, "intervals": self._intervals}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sum, self._intervals = state["sum"], list(state["intervals"])


class Guard:
    """Checks forgetting every few steps, from the second task on, and keeps the state at the last good check.

    A guard that has gone back as often as it may stops watching until the next task.
    """

    def __init__(self, config: GuardConfig, method: Method, stream: Stream, device: torch.device) -> None:
        self.config = config
        self.is_watching = False
        self._watch: ForgettingWatch = (
            MeasuredForgetting(config.rise, method, stream, device)
            if config.kind == "measured"
            else PredictedForgetting(config.rise, method)
        )
        self._point: bytes | None = None
        self._rollbacks = 0

    def begin_task(self, number: int) -> None:
        self._point, self._rollbacks = None, 0
        self.is_watching = number > 0
        if self.is_watching:
            self._watch.begin_task(number)

    def end_task(self) -> None:
        self._point, self.is_watching = None, False

    def keep(self, state: dict[str, Any]) -> None:
        """Keep the state of a good point, which later steps must not change."""
        packed = io.BytesIO()
        torch.save(state, packed)
        self._point = packed.getvalue()

    def see_step(self, step: int, steps: int) -> bool:
        """Look at step `step` of the `steps` of this task; return True if it is a good point to go back to.

        Raises SharpForgetting if it is a bad one. The last step of a task is always checked.
        """
        if not self.is_watching:
            return False
        self._watch.see_step()
        if step % self.config.every and step < steps:
            return False
        self._watch.check()
        return True

    def go_back(self) -> dict[str, Any]:
        """Return the state at the last good point; the last time that a task may, the guard stops watching."""
        assert self._point is not None
        state: dict[str, Any] = torch.load(io.BytesIO(self._point), weights_only=True, map_location="cpu")
        self._rollbacks += 1
        self.is_watching = self._rollbacks < self.config.rollbacks
        self._point = self._point if self.is_watching else None
        self._watch.go_back()
        return state

    def state_dict(self) -> dict[str, Any]:
        point = None if self._point is None else torch.frombuffer(bytearray(self._point), dtype=torch.uint8)
        watch = self._watch.state_dict()
        return {"point": point, "rollbacks": self._rollbacks, "is_watching": self.is_watching, "watch": watch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        point = state["point"]
        self._point = None if point is None else point.numpy().tobytes()
        self._rollbacks, self.is_watching = state["rollbacks"], state["is_watching"]
        self._watch.load_state_dict(state["watch"])
