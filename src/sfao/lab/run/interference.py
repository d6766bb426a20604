"""Interference between two tasks, read from what the gate decides while one is learnt right after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from sfao.decision import Decision
from sfao.lab.data.dataset import Dataset
from sfao.lab.methods import METHODS
from sfao.lab.run.checkpoint import pack_state, unpack_state
from sfao.lab.run.config import RunConfig
from sfao.lab.run.determinism import deterministic_kernels
from sfao.lab.run.epoch_batches import epoch_batches
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.execute import set_up
from sfao.lab.run.forgetting_watch import predict_interference
from sfao.lab.run.position import Position
from sfao.lab.run.randomness import seed_generators
from sfao.lab.run.run import Run
from sfao.lab.run.snapshot import restore_snapshot, take_snapshot
from sfao.lab.streams.seeding import make_generator


@dataclass(frozen=True)
class PairStatistics:
    """Means over the steps of the first epoch of task `second`, learnt right after task `first` and nothing else.

    `accept`, `project` and `discard` are shares of the decisions of all layers, `kept` the share of the length of a
    gradient that its update kept, and `interference` learning rate times interference risk: how far a step moved the
    outputs of a layer for inputs of the first task, relatively, or went against a direction that is remembered of it.
    """

    first: int
    second: int
    accept: float
    project: float
    discard: float
    kept: float
    interference: float


def check_probe(config: RunConfig) -> None:
    """Refuse a method whose decisions cannot be read."""
    if not METHODS[config.method].is_gated:
        gated = ", ".join(name for name, method in METHODS.items() if method.is_gated)
        raise ConfigError(f"`method` must be one with a gate, {gated}, got {config.method!r}")


def probe_pairs(config: RunConfig, dataset: Dataset, tell: Callable[[str], None]) -> list[PairStatistics]:
    """Return the statistics of every ordered pair of tasks: T tasks learnt in full, T (T - 1) for an epoch.

    Nothing is evaluated, so no test data is used.
    """
    check_probe(config)
    tasks = len(set_up(config, dataset, Path()).stream)
    if tasks < 2:
        raise ConfigError(f"`tasks` must be at least 2 for an order of tasks, got {tasks}")
    found = []
    for first in range(tasks):
        tell(f"task {first + 1} of {tasks}, and each of the others after it")
        found += _probe_after(set_up(config, dataset, Path()), first)
    return found


def _probe_after(run: Run, first: int) -> list[PairStatistics]:
    method, others = run.method, [number for number in range(len(run.stream)) if number != first]
    seeded = seed_generators(run.config.seed, run.device)
    with deterministic_kernels(run.config.deterministic), seeded as generators:
        _learn(run, 0, first, run.config.epochs)
        generator = make_generator(run.config.seed, f"end of probed task {first}")
        method.end_task(0, run.stream.tasks[first], generator)
        learnt = pack_state(take_snapshot(Position(), method, generators))
        found = []
        for second in others:
            restore_snapshot(unpack_state(learnt), method, generators)
            before = _count_decisions(run)
            kept, interference = _learn(run, 1, second, epochs=1)
            counts = {name: count - before[name] for name, count in _count_decisions(run).items()}
            shares = {name: count / max(1, sum(counts.values())) for name, count in counts.items()}
            found.append(PairStatistics(first, second, **shares, kept=fmean(kept or [1.0]), interference=interference))
    return found


def _learn(run: Run, place: int, number: int, epochs: int) -> tuple[list[float], float]:
    """Learn a task; return the shares that updates kept and the mean interference, of a task that is not the first."""
    task, kept, interference = run.stream.tasks[number], list[float](), list[float]()
    run.method.begin_task(place, task)
    run.model.train()
    for epoch in range(epochs):
        label = f"probed task {number}, epoch {epoch}"
        for batch in epoch_batches([task], run.config.batch_size, run.config.seed, label, run.device, 0):
            run.method.step(*batch)
            if place:
                kept += [look["kept"] for look in run.method.looks.values()]
                interference.append(predict_interference(run.method))
    return kept, fmean(interference or [0.0])


def _count_decisions(run: Run) -> dict[str, int]:
    counts = run.method.decisions.values()
    return {kind.value: sum(layer[kind.value] for layer in counts) for kind in Decision}
