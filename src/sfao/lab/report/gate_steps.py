"""What the gate did in each recorded step, from steps.jsonl."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfao.lab.report.comparison import OURS
from sfao.lab.report.runs import DECISIONS, LoadedRun, RunGroup
from sfao.lab.report.style import pick_evenly

#: `kept` is written with four digits: a value this close to 0 or 1 was discarded or accepted.
ROUNDED = 1e-4
#: The options with thresholds on the cosine, and what happens beyond each.
THRESHOLDS = {"discard_below": "discard", "accept_above": "accept"}
#: Intervals of steps in a figure; more are finer than print.
MOST_INTERVALS = 60


@dataclass(frozen=True)
class GateStep:
    """One step of one layer: the largest sampled cosine, and the share of the gradient's norm that was kept."""

    run: LoadedRun
    step: int
    layer: str
    cosine: float
    kept: float

    @property
    def is_projected(self) -> bool:
        return ROUNDED < self.kept < 1 - ROUNDED


def gated_rows(group: RunGroup) -> dict[str, list[LoadedRun]]:
    """Return the rows whose runs have a gate that decided anything, ours first."""
    gated = {
        row: runs
        for row, runs in group.done.items()
        if any("kept" in values for run in runs for line in run.steps for values in line["gate"].values())
    }
    return dict(sorted(gated.items(), key=lambda item: item[0].split(" ")[0] not in OURS))


def collect_steps(runs: Iterable[LoadedRun], layer: str | None = None) -> list[GateStep]:
    """Return the steps in which a layer, or any layer, was compared with stored directions."""
    return [
        GateStep(run, line["step"], name, values["cosine"], values["kept"])
        for run in runs
        for line in run.steps
        for name, values in line["gate"].items()
        if {"cosine", "kept"} <= values.keys() and layer in (None, name)
    ]


def layers_of(runs: Iterable[LoadedRun]) -> list[str]:
    """Return the names of the layers in the order of the model."""
    return list(dict.fromkeys(layer for run in runs for line in run.steps for layer in line["decisions"]))


def thresholds_of(run: LoadedRun) -> dict[str, float]:
    """Return {`accept` or `discard`: threshold} of those that a cosine can be beyond."""
    values = {kind: run.options.get(option) for option, kind in THRESHOLDS.items()}
    return {kind: value for kind, value in values.items() if isinstance(value, float) and abs(value) < 1}


def intervals_of(runs: Sequence[LoadedRun], layer: str) -> list[int]:
    """Return the ends of intervals of steps, from 0, that all runs with telemetry of the layer have recorded."""
    recorded = [{line["step"] for line in run.steps if layer in line["decisions"]} for run in runs]
    common = sorted(set.intersection(*filter(None, recorded))) if any(recorded) else []
    return [0, *pick_evenly(common, MOST_INTERVALS)]


def count_decisions(run: LoadedRun, layer: str, ends: Sequence[int]) -> NDArray[np.int64]:
    """Return how often the gate of a layer decided what: [interval, decision]; zeros where the run has no telemetry."""
    so_far = {line["step"]: line["decisions"][layer] for line in run.steps if layer in line["decisions"]}
    if not so_far:
        return np.zeros((len(ends) - 1, len(DECISIONS)), dtype=np.int64)
    counts = [[0] * len(DECISIONS), *([so_far[end][name] for name in DECISIONS] for end in ends[1:])]
    return np.diff(np.array(counts), axis=0)


def task_changes(run: LoadedRun) -> list[float]:
    """Return the places between the last recorded step of a task and the first of the next."""
    pairs = zip(run.steps, run.steps[1:], strict=False)
    return [(before["step"] + after["step"]) / 2 for before, after in pairs if before["task"] != after["task"]]
