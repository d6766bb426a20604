"""What is seen of a run at a moment, and the words for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from sfao.lab.console import escape_controls
from sfao.lab.metrics import average_accuracy, average_forgetting
from sfao.lab.run.loop import Run
from sfao.lab.run.record import describe_rollback


@dataclass(frozen=True)
class Sight:
    """The place of a run, counted from 0, and the accuracies so far: a row after each task, a column for every task."""

    task: int
    epoch: int
    epochs: int
    step: int
    steps: int
    names: tuple[str, ...]
    initial: tuple[float, ...] = ()
    rows: tuple[tuple[float, ...], ...] = ()
    notices: tuple[str, ...] = ()


def look_at(run: Run) -> Sight:
    """Return what there is to see of a run, from another thread than the one that trains it."""
    at = run.position  # once: a rollback puts another one in its place
    return Sight(
        task=at.task,
        epoch=at.epoch,
        epochs=run.config.epochs,
        step=at.steps,
        steps=run.total_steps,
        names=tuple(escape_controls(task.name) for task in run.stream),
        initial=tuple(at.initial),
        rows=tuple(tuple(row) for row in list(at.matrix)),
        notices=tuple(escape_controls(text) for text in (*map(describe_rollback, at.rollbacks), *at.warnings)),
    )


def describe_run(run: Run) -> tuple[str, str]:
    """Return a title for a run, and a line on what it is."""
    config = run.config
    facts = (
        f"{config.scenario} scenario",
        f"{len(run.stream)} task{'s' * (len(run.stream) > 1)}",
        f"{config.epochs} epoch{'s' * (config.epochs > 1)} each",
        f"model {config.model.name}",
        f"learning rate {config.lr:g}",
        config.device,
    )
    return escape_controls(f"{config.method} on {config.benchmark}, seed {config.seed}"), escape_controls(
        ", ".join(facts)
    )


def describe_place(sight: Sight) -> str:
    """Return in words what a run does now."""
    tasks = len(sight.names)
    if sight.task >= tasks:
        return f"All {tasks} tasks learnt"
    where = f"Task {sight.task + 1} of {tasks}"
    if sight.step == 0 and not sight.initial:
        return f"{where}: measuring accuracies before the first step"
    if sight.epoch >= sight.epochs:
        return f"{where}: measuring accuracies, storing what later tasks need"
    return f"{where}, epoch {sight.epoch + 1} of {sight.epochs}"


def summarise(rows: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return accuracy and forgetting as if the stream ended with the last task learnt; empty before the first has."""
    square = [list(row[: len(rows)]) for row in rows]
    return {"accuracy": average_accuracy(square), "forgetting": average_forgetting(square)} if rows else {}


class Pace:
    """The speed of a run since its first report here, evaluations included: a resumed run began somewhere."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last = (0, 0.0)

    def note(self, step: int, now: float) -> None:
        self._last = (step, now)
        self._first = self._first or self._last

    @property
    def rate(self) -> float | None:
        """Steps per second; None as long as there is nothing to tell it from."""
        if self._first is None:
            return None
        steps, seconds = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return steps / seconds if steps > 0 and seconds > 0 else None

    def seconds_left(self, steps: int, now: float) -> float | None:
        """Return the seconds that a run of so many steps will take from now on."""
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
    """Return a speed in words, per minute where it is slow."""
    return f"{rate:.0f} steps a second" if rate >= 10 else f"{rate * 60:.0f} steps a minute"
