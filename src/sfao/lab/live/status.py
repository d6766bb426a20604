"""The status of a run in numbers and words, for its page."""

from collections.abc import Sequence
from math import ceil
from typing import Any

from sfao.lab.console import escape_controls
from sfao.lab.metrics import average_accuracy, average_forgetting
from sfao.lab.run.loop import Run
from sfao.lab.run.record import describe_rollback


def read_status(run: Run) -> dict[str, Any]:
    """Return what the page shows of a run; called from another thread than the one that trains."""
    at, config = run.position, run.config  # once: a rollback replaces the position
    names = [escape_controls(task.name) for task in run.stream]
    initial, rows = list(at.initial), [list(row) for row in list(at.matrix)]
    facts = (
        f"{config.scenario} scenario",
        f"{len(names)} task{'s' * (len(names) > 1)}",
        f"{config.epochs} epoch{'s' * (config.epochs > 1)} each",
        f"model {config.model.name}",
        f"learning rate {config.lr:g}",
        config.device,
    )
    return {
        "title": escape_controls(f"{config.method} on {config.benchmark}, seed {config.seed}"),
        "lead": escape_controls(", ".join(facts)),
        "place": describe_place(at.task, len(names), at.epoch, config.epochs, has_begun=bool(at.steps or initial)),
        "step": at.steps,
        "steps": run.total_steps,
        "names": names,
        "initial": initial,
        "rows": rows,
        "summary": summarize(rows),
        "notices": [escape_controls(text) for text in (*map(describe_rollback, at.rollbacks), *at.warnings)],
    }


def describe_place(task: int, tasks: int, epoch: int, epochs: int, *, has_begun: bool = True) -> str:
    """Return what a run does now, from its task and epoch, counted from 0."""
    if task >= tasks:
        return f"All {tasks} tasks learned"
    where = f"Task {task + 1} of {tasks}"
    if not has_begun:
        return f"{where}: measuring accuracies before the first step"
    if epoch >= epochs:
        return f"{where}: measuring accuracies, storing what later tasks need"
    return f"{where}, epoch {epoch + 1} of {epochs}"


def summarize(rows: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return accuracy and forgetting over the tasks learned so far; empty before the first is."""
    square = [list(row[: len(rows)]) for row in rows]
    return {"accuracy": average_accuracy(square), "forgetting": average_forgetting(square)} if rows else {}


class Throughput:
    """Steps per second since the first report here, evaluations included; a resumed run began at a later step."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last = (0, 0.0)

    def add(self, step: int, now: float) -> None:
        self._last = (step, now)
        self._first = self._first or self._last

    @property
    def rate(self) -> float | None:
        """Steps per second; None until there are two reports."""
        if self._first is None:
            return None
        steps, seconds = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return steps / seconds if steps > 0 and seconds > 0 else None

    def seconds_left(self, steps: int, now: float) -> float | None:
        """Return how long a run of so many steps will take from now on."""
        rate = self.rate
        return None if rate is None else max(0.0, (steps - self._last[0]) / rate - (now - self._last[1]))


def describe_seconds(seconds: float) -> str:
    """Return a time in one or two units: 40 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    whole = ceil(seconds)
    for large, small, unit, subunit in ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            first, second = whole // large, whole % large // small
            return f"{first} {unit} {second} {subunit}" if second else f"{first} {unit}"
    return f"{whole} s"


def describe_rate(rate: float) -> str:
    """Return a rate per second, or per minute for slow runs."""
    return f"{rate:.0f} steps per second" if rate >= 10 else f"{rate * 60:.0f} steps per minute"
