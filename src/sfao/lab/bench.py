"""Time and memory of a training step: SGD, AdamW, DriftBound, SFAO with full memories, and the released code's loop."""

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.drift_bound import DriftBound
from sfao.lab.models import MODELS, build_model
from sfao.lab.report.tables import Column, Table
from sfao.lab.run.record import versions
from sfao.optimizer import SFAO

#: {model: shape of its input}
MODEL_INPUTS = {"mlp": (1, 28, 28), "cnn": (3, 32, 32), "wrn-28-10": (3, 32, 32)}
CLASSES = 10
#: Different batches, so that gradients differ from step to step.
BATCHES = 8
#: Directions that SFAO compares with at a step.
SAMPLES = 10
#: So small that every projection of DriftBound acts.
TOLERANCE = 1e-3
#: Steps per measurement: as many as DriftBound takes from one projection to the next.
TURN_STEPS = 8
#: Steps before the first measurement, which compile, capture and build factors.
WARM_UP_STEPS = 3

Step = Callable[[], None]
#: Called with the kind of work, the number of groups that are measured, and the number of all.
Progress = Callable[[str, int, int], None]


# -- Cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One optimizer on one model. `directions` per layer are stored; `rank` is that of factored ones, 0 of dense."""

    model: str
    kind: str
    directions: int = 0
    rank: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind} rank {self.rank}" if self.rank else self.kind

    @property
    def dense_bytes(self) -> int:
        """Bytes of dense directions: 4 k d for k directions of a model with d parameters, as in the paper."""
        if self.rank:
            return 0
        with torch.device("meta"):
            model = MODELS[self.model](MODEL_INPUTS[self.model], CLASSES)
        return 4 * self.directions * sum(parameter.numel() for parameter in model.parameters())


SGD, ADAMW, DRIFT_BOUND = "SGD", "AdamW", "DriftBound"
RELEASED, DENSE, FACTORED = "released-code loop", "SFAO dense", "SFAO factored"


def plan_groups(
    models: Sequence[str], directions: Sequence[int], ranks: Sequence[int], max_bytes: int
) -> tuple[dict[str, list[Case]], list[str]]:
    """Return {title: cases that take turns, SGD first}, and the cases left out as they hold more than `max_bytes`."""
    groups: dict[str, list[Case]] = {}
    left_out = []
    for model in models:
        groups[f"{model}, DriftBound"] = [Case(model, SGD), Case(model, ADAMW), Case(model, DRIFT_BOUND)]
        for count in directions:
            stored = [Case(model, RELEASED, count), Case(model, DENSE, count)]
            stored += [Case(model, FACTORED, count, rank) for rank in ranks]
            fitting = [case for case in stored if case.dense_bytes <= max_bytes]
            left_out += [
                f"{model}, {case.name}, {count} directions: {case.dense_bytes / 1e9:.1f} GB"
                for case in stored
                if case not in fitting
            ]
            if fitting:
                groups[f"{model}, {count} directions"] = [Case(model, SGD), *fitting]
    return groups, left_out


# -- Training steps --------------------------------------------------------------------------------------------------


class Training:
    """The model and the optimizer of a case, with a full memory; `step` is timed."""

    def __init__(self, case: Case, device: torch.device, batch_size: int) -> None:
        shape = MODEL_INPUTS[case.model]
        self.model = build_model(case.model, shape, CLASSES, seed=0).to(device)
        layout = torch.contiguous_format
        if device.type == "cuda" and any(isinstance(module, nn.Conv2d) for module in self.model.modules()):
            layout = torch.channels_last  # as runs have it
        self.model = self.model.to(memory_format=layout)  # type: ignore[call-overload]
        self.batches = random_batches(shape, batch_size, device, layout)
        self.optimizer, self.memory = self._make_optimizer(case)

    def _make_optimizer(self, case: Case) -> tuple[torch.optim.Optimizer, Any]:
        """Return the optimizer, and what holds the memory of past tasks."""
        if case.kind == RELEASED:
            released = ReleasedLoop(self.model, case.directions)
            return released, released
        if case.kind in (DENSE, FACTORED):
            gated = full_optimizer(self.model, case)
            return gated, gated
        if case.kind == ADAMW:
            return torch.optim.AdamW(self.model.parameters(), lr=1e-3), None
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        if case.kind == SGD:
            return optimizer, None
        bound = DriftBound(self.model, TOLERANCE).attach(optimizer)
        bound.consolidate(list(islice(self.batches, BATCHES)), cross_entropy)
        return optimizer, bound

    def step(self) -> None:
        self.optimizer.zero_grad()
        inputs, targets = next(self.batches)
        cross_entropy(self.model(inputs), targets).backward()
        self.optimizer.step()

    @property
    def memory_bytes(self) -> int:
        return getattr(self.memory, "memory_bytes", 0)


def random_batches(
    shape: tuple[int, ...], batch_size: int, device: torch.device, layout: torch.memory_format
) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(BATCHES):
        inputs = torch.randn(batch_size, *shape, generator=generator).to(device, memory_format=layout)
        batches.append((inputs, torch.randint(0, CLASSES, (batch_size,), generator=generator).to(device)))
    return cycle(batches)


def full_optimizer(model: nn.Module, case: Case) -> SFAO:
    """Return an optimizer whose memory is full of random directions, and which projects every layer at every step."""
    optimizer = SFAO(
        model,
        lr=1e-3,
        momentum=0.0,
        accept_above=1.0,
        discard_below=-1.0,
        capacity=case.directions,
        samples=min(SAMPLES, case.directions),
        storage="factored" if case.rank else "dense",
        rank=max(case.rank, 1),
    )
    parameters = list(model.parameters())
    generator = torch.Generator(parameters[0].device).manual_seed(0)
    for _ in range(case.directions):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, device=parameter.device, generator=generator)
        optimizer.remember()
    optimizer.zero_grad()
    optimizer.end_task()
    return optimizer


class ReleasedLoop(torch.optim.SGD):
    """Gating as in the paper's released code: one vector for the model, one direction after the other."""

    def __init__(self, model: nn.Module, directions: int) -> None:
        super().__init__(model.parameters(), lr=1e-3)
        first = next(model.parameters())
        size = sum(parameter.numel() for parameter in model.parameters())
        generator = torch.Generator(first.device).manual_seed(0)
        drawn = (torch.randn(size, device=first.device, generator=generator) for _ in range(directions))
        self.directions = [direction / direction.norm() for direction in drawn]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        parameters = self.param_groups[0]["params"]
        gradient = torch.cat([parameter.grad.flatten() for parameter in parameters])
        largest = max(abs(float(gradient @ d / (gradient.norm() * d.norm()))) for d in self.directions)
        if largest <= 1:
            for direction in self.directions:
                gradient = gradient - (gradient @ direction) * direction
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, part in zip(parameters, gradient.split(sizes), strict=True):
            parameter.grad.copy_(part.view_as(parameter))
        super().step()

    @property
    def memory_bytes(self) -> int:
        return sum(direction.nbytes for direction in self.directions)


# -- Measurement -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One case, measured in turns with SGD on the same model: the median time per step, and the quartiles around it."""

    group: str
    name: str
    model: str
    parameters: int
    directions: int
    ms: float
    low_ms: float
    high_ms: float
    measurements: int
    times_sgd: float
    memory_bytes: int


@dataclass(frozen=True)
class Results:
    rows: list[Row]
    #: Device and batch size.
    setting: str
    #: True if times are of the processor, not of the clock on the wall.
    cpu_time: bool
    machine: dict[str, Any]
    left_out: list[str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def time_steps(steps: Mapping[str, Step], device: torch.device, turns: int, seconds: float) -> dict[str, list[float]]:
    """Return milliseconds per step, measured in turns until there are `turns` or, from the third on, no time is left.

    A measurement is the mean over `TURN_STEPS` steps after one that isn't counted: in training, the step before is one
    of the same kind and leaves the caches as the next one needs them.
    """
    clock = time.process_time if is_cpu_time(device) else time.perf_counter
    for step in steps.values():
        for _ in range(WARM_UP_STEPS):
            step()
    durations: dict[str, list[float]] = {name: [] for name in steps}
    began = time.perf_counter()
    for turn in range(turns):
        if turn >= 3 and time.perf_counter() - began > seconds:
            break
        for name, step in steps.items():
            step()
            _wait_for(device)
            start = clock()
            for _ in range(TURN_STEPS):
                step()
            _wait_for(device)
            durations[name].append(1e3 * (clock() - start) / TURN_STEPS)
    return durations


def is_cpu_time(device: torch.device) -> bool:
    """Return True if time is that of the processor: with one thread, what other processes take is then not counted."""
    return device.type == "cpu" and torch.get_num_threads() == 1


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def default_max_bytes(device: torch.device) -> int:
    """Return the bytes that the directions of a case may hold."""
    return torch.cuda.mem_get_info(device)[0] // 3 if device.type == "cuda" else 10**9


def measure(
    models: Sequence[str],
    directions: Sequence[int],
    ranks: Sequence[int],
    device: torch.device,
    *,
    batch_size: int = 32,
    turns: int = 30,
    seconds: float = 3.0,
    max_bytes: int | None = None,
    progress: Progress = lambda title, done, total: None,
) -> Results:
    """Measure group after group; within a group the cases take turns."""
    groups, left_out = plan_groups(models, directions, ranks, max_bytes or default_max_bytes(device))
    load_before, rows = _load(), []
    torch.backends.cudnn.benchmark = device.type == "cuda"
    for number, (title, cases) in enumerate(groups.items()):
        progress("groups of cases", number, len(groups))
        trainings = {case.name: Training(case, device, batch_size) for case in cases}
        timings = time_steps({name: each.step for name, each in trainings.items()}, device, turns, seconds)
        sgd_ms = statistics.median(timings[SGD])
        for case, training in zip(cases, trainings.values(), strict=True):
            low, ms, high = statistics.quantiles(timings[case.name], n=4, method="inclusive")
            rows.append(
                Row(
                    group=title,
                    name=case.name,
                    model=case.model,
                    parameters=sum(parameter.numel() for parameter in training.model.parameters()),
                    directions=case.directions,
                    ms=ms,
                    low_ms=low,
                    high_ms=high,
                    measurements=len(timings[case.name]),
                    times_sgd=ms / sgd_ms,
                    memory_bytes=training.memory_bytes,
                )
            )
        del trainings, training
        gc.collect()  # what a group held is free before the next one fills its memories
        if device.type == "cuda":
            torch.cuda.empty_cache()
    machine = {
        **versions(str(device)),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_before": load_before,
        "load_after": _load(),
    }
    return Results(rows, f"{device}, batch {batch_size}", is_cpu_time(device), machine, left_out)


def _load() -> float | None:
    """Return the number of processes that want to run: above that of the cores, the machine is busy."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else f"{os.cpu_count()} cores"


# -- The table -------------------------------------------------------------------------------------------------------


def make_table(results: Results) -> Table[Row]:
    """Return one row per case; the name of a group stands in its first row."""
    columns: list[Column[Row]] = [
        Column("group", lambda row: row.group if row.name == SGD else ""),
        Column("", lambda row: row.name),
        Column("ms per step", lambda row: f"{row.ms:,.2f}", align="right"),
        Column("quartiles", lambda row: f"{row.low_ms:,.2f}-{row.high_ms:,.2f}", align="right"),
        Column("x SGD", lambda row: f"{row.times_sgd:,.2f}", align="right"),
        Column("MB held", lambda row: f"{row.memory_bytes / 1e6:,.2f}", align="right"),
    ]
    machine = results.machine
    title = (
        f"{machine.get('gpu') or machine['processor']}; {results.setting}; {machine['threads']} CPU threads; "
        f"torch {machine['torch']}, Python {machine['python']}, sfao {machine['sfao']}"
    )
    return Table(title, columns, results.rows, _write_notes(results))


def _write_notes(results: Results) -> list[str]:
    machine = results.machine
    notes = [
        "Cases of a group took turns in one process. ms per step: forward, backward and update, the median over "
        f"measurements of {TURN_STEPS} steps. MB held: the memory of past tasks. SFAO projects every layer at every "
        f"step and samples {SAMPLES} directions. DriftBound projects every 8 steps.",
    ]
    if results.cpu_time:
        notes.append("Processor time of one CPU thread; other processes don't count.")
    elif max(machine["load_before"] or 0, machine["load_after"] or 0) > machine["cores"]:
        notes.append("warning: the machine was busy; use --threads 1 to measure processor time.")
    return notes + [f"Left out, too large: {each}." for each in results.left_out]
