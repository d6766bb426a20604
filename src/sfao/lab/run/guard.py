"""Backtracking: a run goes back to its last good point if a task makes the model forget past tasks too fast."""

import io
from statistics import fmean
from typing import Any

import torch

from sfao.lab.methods import Method
from sfao.lab.run.config import GuardConfig
from sfao.lab.run.errors import SharpForgetting
from sfao.lab.run.evaluation import evaluate
from sfao.lab.streams.stream import Stream


class Guard:
    """Checks forgetting every few steps, from the second task on, and keeps the state at the last good check.

    Forgetting is the mean accuracy that past tasks have lost since this one began, on validation data; a gain counts
    as 0. A guard that has gone back as often as it may stops watching until the next task.
    """

    def __init__(self, config: GuardConfig, method: Method, stream: Stream, device: torch.device) -> None:
        self.config, self._method, self._stream, self._device = config, method, stream, device
        self.is_watching = False
        self._start: list[float] = []
        self._forgetting = 0.0
        self._point: bytes | None = None
        self._rollbacks = 0

    def begin_task(self, number: int) -> None:
        """Watch the task with this number, with the accuracies of those before it as they are now."""
        self.is_watching = number > 0
        self._start, self._forgetting = self._measure(number), 0.0
        self._point, self._rollbacks = None, 0

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
        if not self.is_watching or (step % self.config.every and step < steps):
            return False
        pairs = zip(self._start, self._measure(len(self._start)), strict=True)
        found, before, limit = fmean(max(0.0, start - now) for start, now in pairs), self._forgetting, self.config.rise
        if found - before > limit:
            raise SharpForgetting(
                f"forgetting rose from {before:.3f} to {found:.3f}, by more than {limit:g}",
                {"before": before, "now": found, "limit": limit},
            )
        self._forgetting = found
        return True

    def go_back(self) -> dict[str, Any]:
        """Return the state at the last good point; the last time that a task may, the guard stops watching."""
        assert self._point is not None
        state: dict[str, Any] = torch.load(io.BytesIO(self._point), weights_only=True, map_location="cpu")
        self._rollbacks += 1
        self.is_watching = self._rollbacks < self.config.rollbacks
        return state

    def _measure(self, tasks: int) -> list[float]:
        return evaluate(self._method, self._stream.tasks[:tasks], "validation", self._device)

    def state_dict(self) -> dict[str, Any]:
        point = self._point if self.is_watching else None
        return {
            "point": None if point is None else torch.frombuffer(bytearray(point), dtype=torch.uint8),
            "rollbacks": self._rollbacks,
            "is_watching": self.is_watching,
            "start": self._start,
            "forgetting": self._forgetting,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        point = state["point"]
        self._point = None if point is None else point.numpy().tobytes()
        self._rollbacks, self.is_watching = state["rollbacks"], state["is_watching"]
        self._start, self._forgetting = list(state["start"]), state["forgetting"]
