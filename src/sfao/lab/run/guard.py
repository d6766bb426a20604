"""The guard of a run: the last good point of a task, and the checks after which the run goes back to it."""

from typing import Any

import torch

from sfao.lab.methods import Method
from sfao.lab.run.checkpoint import pack_state, unpack_state
from sfao.lab.run.config import GuardConfig
from sfao.lab.run.errors import GuardError, SharpForgetting
from sfao.lab.run.forgetting_watch import ForgettingWatch, MeasuredForgetting, PredictedForgetting
from sfao.lab.streams.stream import Stream


class Guard:
    """Checks forgetting every few steps, from the second task on, and keeps the state at the last good check.

    The run hands over its state at the beginning of a task and after each good check, and takes it back after a bad
    one. A guard that has gone back as often as it may watches no more until the next task.
    """

    def __init__(self, config: GuardConfig, watch: ForgettingWatch) -> None:
        self.config, self.watch = config, watch
        self.is_watching = False
        self._point: bytes | None = None
        self._rollbacks = 0

    def begin_task(self, number: int) -> None:
        self._point, self._rollbacks = None, 0
        self.is_watching = number > 0
        if self.is_watching:
            self.watch.begin_task(number)

    def end_task(self) -> None:
        self._point, self.is_watching = None, False

    def keep(self, state: dict[str, Any] | None) -> None:
        """Keep the state of a good point; None is one that is too large to keep."""
        self._point = None if state is None else pack_state(state)

    def see_step(self, step: int, steps: int) -> bool:
        """Look at step `step` of the `steps` of this task; return True if it is a good point to go back to.

        Raises SharpForgetting if it is a bad one. The last step of a task is always checked.
        """
        if not self.is_watching:
            return False
        self.watch.see_step()
        if step % self.config.every and step < steps:
            return False
        rise = self.watch.find_rise()
        if rise is not None:
            raise SharpForgetting(rise.reason, rise.values)
        return True

    def go_back(self) -> dict[str, Any]:
        """Return the state at the last good point; the last time that a task may, the guard stops watching."""
        if self._point is None:
            raise GuardError(
                "`guard` must have a point to go back to, but the state of the run was too large to keep one; "
                "run it without `guard`, or with a smaller memory, in another folder"
            )
        state = unpack_state(self._point)
        self._rollbacks += 1
        self.is_watching = self._rollbacks < self.config.rollbacks
        self._point = self._point if self.is_watching else None
        self.watch.go_back()
        return state

    def state_dict(self) -> dict[str, Any]:
        point = None if self._point is None else torch.frombuffer(bytearray(self._point), dtype=torch.uint8)
        return {
            "point": point,
            "rollbacks": self._rollbacks,
            "is_watching": self.is_watching,
            "watch": self.watch.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        point = state["point"]
        self._point = None if point is None else point.numpy().tobytes()
        self._rollbacks, self.is_watching = state["rollbacks"], state["is_watching"]
        self.watch.load_state_dict(state["watch"])


def make_guard(config: GuardConfig | None, method: Method, stream: Stream, device: torch.device) -> Guard | None:
    """Return the guard that the settings ask for; None when they ask for none."""
    if config is None:
        return None
    if config.kind == "measured":
        return Guard(config, MeasuredForgetting(config.rise, method, stream, device))
    return Guard(config, PredictedForgetting(config.rise, method))
