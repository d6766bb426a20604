"""The course of a run in a bounded number of stretches, however many lines its telemetry has."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from math import isfinite
from typing import Any

from sfao.lab.console import escape_controls

#: As steps.jsonl names them, in the order in which a page gets them.
DECISIONS = ("accept", "project", "discard", "zero")
#: The drift of a bound is a share of what is allowed.
LOOKS = ("kept", "drift", "cosine")
#: When there are twice as many stretches, neighbours are joined.
MOST_STRETCHES = 80


@dataclass(frozen=True)
class Mean:
    """A mean that can be joined with another."""

    total: float = 0.0
    count: int = 0

    def __add__(self, other: "Mean") -> "Mean":
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float | None:
        """The mean, with the digits that a page shows; None of nothing."""
        return float(f"{self.total / self.count:.4g}") if self.count else None


@dataclass(frozen=True)
class LayerStretch:
    """One layer in a stretch: the decisions of a gate so far, all 0 without one, and means of its telemetry."""

    counts: tuple[int, ...] = ()
    looks: tuple[Mean, ...] = (Mean(),) * len(LOOKS)

    def join(self, later: "LayerStretch") -> "LayerStretch":
        looks = tuple(one + other for one, other in zip(self.looks, later.looks, strict=True))
        return LayerStretch(later.counts or self.counts, looks)


@dataclass(frozen=True)
class Stretch:
    """Neighbouring lines of steps.jsonl: where the last of them is, and the mean of each number."""

    step: int
    task: int
    epoch: int
    lines: int
    loss: Mean
    #: By the number of the layer in the history.
    layers: tuple[LayerStretch, ...]

    def join(self, later: "Stretch") -> "Stretch":
        pairs = zip_longest(self.layers, later.layers, fillvalue=LayerStretch())
        layers = tuple(one.join(other) for one, other in pairs)
        return Stretch(later.step, later.task, later.epoch, self.lines + later.lines, self.loss + later.loss, layers)

    @cached_property
    def text(self) -> str:
        """The stretch as JSON: step, task, epoch, loss, and of each layer counts and looks, or null."""
        layers = [
            [*layer.counts, *(look.value for look in layer.looks)] if layer.counts else None for layer in self.layers
        ]
        return json.dumps([self.step, self.task, self.epoch, self.loss.value, layers], separators=(",", ":"))


class History:
    """Stretches of at most so many steps, or of one line; the last is still filled."""

    def __init__(self) -> None:
        self.layers: list[str] = []
        #: The last step before each new task.
        self.task_ends: list[int] = []
        self.stretches: list[Stretch] = []
        self._width = 0

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line of steps.jsonl; raise a KeyError, TypeError or ValueError for one that is none."""
        stretch = self._read(line)
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.task != stretch.task:
            self.task_ends.append(last.step)
        self._append(stretch)
        while len(self.stretches) >= 2 * MOST_STRETCHES:
            self._width = max(2 * self._width, stretch.step // MOST_STRETCHES)
            self.stretches, narrow = [], self.stretches
            for each in narrow:
                self._append(each)

    def _append(self, stretch: Stretch) -> None:
        if self._fits(stretch):
            self.stretches[-1] = self.stretches[-1].join(stretch)
        else:
            self.stretches.append(stretch)

    def _fits(self, stretch: Stretch) -> bool:
        """Tell whether it is not too wide together with the last one, and of the same task where tasks are few."""
        if not self.stretches:
            return False
        begins = self.stretches[-2].step if len(self.stretches) > 1 else 0
        is_one_task = self.stretches[-1].task == stretch.task or len(self.task_ends) > MOST_STRETCHES // 2
        return is_one_task and stretch.step - begins <= self._width

    def _read(self, line: Mapping[str, Any]) -> Stretch:
        decisions, looks = line["decisions"], line["gate"]
        names = list(dict.fromkeys((*self.layers, *decisions, *looks)))
        layers = tuple(_read_layer(decisions.get(name), looks.get(name, {})) for name in names)
        step, task, epoch = (_read_count(line[name]) for name in ("step", "task", "epoch"))
        stretch = Stretch(step, task, epoch, 1, _read_mean(line["loss"]), layers)
        self.layers = names
        return stretch

    def as_json(self) -> str:
        """Return the history for a page; stretches that have not changed are not written again."""
        layers, ends = json.dumps([escape_controls(name) for name in self.layers]), json.dumps(self.task_ends)
        stretches = ",".join(stretch.text for stretch in self.stretches)
        return f'{{"layers":{layers},"taskEnds":{ends},"stretches":[{stretches}]}}'


def _read_layer(counts: Mapping[str, Any] | None, looks: Mapping[str, Any]) -> LayerStretch:
    if counts is None and not looks:
        return LayerStretch()
    if looks.get("allowed"):
        looks = {**looks, "drift": looks["drift"] / looks["allowed"]}
    means = tuple(_read_mean(looks[name]) if name in looks else Mean() for name in LOOKS)
    counted = dict.fromkeys(DECISIONS, 0) if counts is None else counts
    return LayerStretch(tuple(_read_count(counted[name]) for name in DECISIONS), means)


def _read_count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"must be a count, got {value!r}")
    return value


def _read_mean(value: Any) -> Mean:
    """Return the mean of one number; a number that is not finite is left out."""
    return Mean(float(value), 1) if isfinite(value) else Mean()
