"""Measuring all groups of a sweep, and the results."""

import gc
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from sfao.lab.bench.cases import Case, Group, Sweep, plan_groups
from sfao.lab.bench.measuring import Effort, Timing, counts_cpu_time, time_steps
from sfao.lab.bench.training import Setting, Training
from sfao.lab.run.record import versions

#: Called with the title of a group, the number of groups done, and the number of all.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Row:
    """One case, measured beside SGD on the same model."""

    group: str
    name: str
    model: str
    parameters: int
    directions: int
    storage: str | None
    rank: int | None
    memory_dtype: str | None
    #: Directions sampled at a step.
    samples: int | None
    decisions: str | None
    #: {decision: count}, over all layers.
    decided: dict[str, int]
    ms: float
    low_ms: float
    high_ms: float
    measurements: int
    times_sgd: float
    #: The time beyond SGD's.
    extra_ms: float
    memory_bytes: int
    workspace_bytes: int


@dataclass(frozen=True)
class Results:
    rows: list[Row]
    setting: str
    #: Whether times are of the processor, not of the clock on the wall.
    cpu_time: bool
    machine: dict[str, Any]
    left_out: list[str]

    def as_json(self) -> dict[str, Any]:
        return {"format": 1, **asdict(self)}


def measure(sweep: Sweep, setting: Setting, effort: Effort, progress: Progress = lambda *_: None) -> Results:
    """Measure group after group; within one, all cases take turns."""
    groups, left_out = plan_groups(sweep)
    before = load()
    rows = []
    # Shapes stay as they are: let the fastest convolutions be found, for all alike.
    torch.backends.cudnn.benchmark = setting.device.type == "cuda"
    for number, group in enumerate(groups):
        progress(group.title, number, len(groups))
        rows += measure_group(group, setting, effort)
        release()
    machine = {
        **versions(str(setting.device)),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load_before": before,
        "load_after": load(),
    }
    return Results(rows, str(setting), counts_cpu_time(setting.device), machine, left_out)


def measure_group(group: Group, setting: Setting, effort: Effort) -> list[Row]:
    trainings = {case: Training(case, setting) for case in group.cases}
    steps = {str(number): training.step for number, training in enumerate(trainings.values())}
    # Steps of a mixture take different times, and a bound projects at one of several steps: their median says nothing,
    # that of their means over turns does.
    mixed = any(case.decisions == "mix" or case.is_bound for case in group.cases)
    timings = list(time_steps(steps, effort, setting.device, joined=mixed).values())
    return [
        _row(group, case, training, timing, timings[0].ms)
        for (case, training), timing in zip(trainings.items(), timings, strict=True)
    ]


def _row(group: Group, case: Case, training: Training, timing: Timing, sgd_ms: float) -> Row:
    held = case.storage
    return Row(
        group=group.title,
        name=case.name,
        model=case.model,
        parameters=sum(parameter.numel() for parameter in training.model.parameters()),
        directions=case.directions,
        storage=held.kind if held else None,
        rank=held.rank if held and held.has_rank else None,
        memory_dtype=held.dtype if held else None,
        samples=min(case.samples or case.directions, case.directions) if held else None,
        decisions=case.decisions if case.directions else None,
        decided=training.decision_counts,
        ms=timing.ms,
        low_ms=timing.low_ms,
        high_ms=timing.high_ms,
        measurements=timing.measurements,
        times_sgd=timing.ms / sgd_ms,
        extra_ms=timing.ms - sgd_ms,
        memory_bytes=training.memory_bytes,
        workspace_bytes=training.workspace_bytes,
    )


def release() -> None:
    """Release what a group held before the next one fills its memories."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def load() -> float | None:
    """Return the number of processes that want to run: above that of the cores, the machine is busy."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else f"{os.cpu_count()} cores"
