"""The same seed again, in other circumstances: each must end in the same bits."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from sfao.lab.run.compare import run_here
from sfao.lab.run.config import RunConfig, configure
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.jobs import Job
from sfao.lab.run.loop import execute
from sfao.lab.run.pool import THREAD_VARIABLES, run_all
from sfao.lab.run.record import Record
from tests.faults.tally import Attack, in_soak

Begin = Callable[[str, str], Attack]

METHODS = ["sgd", "sfao", "ewc", "si", "ogd", "agem", "gem", "gpm"][: in_soak(2, 8)]
MODELS = ["mlp", "cnn"][: in_soak(1, 2)]
#: PYTHONHASHSEED of worker processes, which decides the order of sets of strings.
HASH_SEEDS = ["1", "4294967295", "0", "7"]


def _configure(method: str, model: str, seed: int = 0) -> RunConfig:
    size = {"model.hidden": 16} if model == "mlp" else {}
    settings = {"model.name": model, **size, "tasks": 2, "epochs": 1, "fraction": 0.05}
    return configure("split-mnist-5k", method, seed=seed, settings=settings)


def _plan(folder: Path) -> list[Job]:
    pairs = itertools.product(METHODS, MODELS)
    return [Job(_configure(method, model), folder / f"{method}-{model}") for method, model in pairs]


def _run_here(jobs: list[Job]) -> dict[str, Record]:
    records = run_here(jobs, watch=lambda job, event: None, workers=1, threads=1)
    return {job.folder.name: record for job, record in zip(jobs, records, strict=True)}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """The records of all runs, each in this process, one after the other."""
    return _run_here(_plan(tmp_path_factory.mktemp("reference")))


def _expect_same(record: object, expected: Record) -> None:
    assert isinstance(record, Record), record
    for name in ("weights_sha256", "accuracy_matrix", "decisions", "steps", "memory_bytes"):
        assert getattr(record, name) == getattr(expected, name), name


def test_again_in_this_process_in_the_opposite_order(
    reference: dict[str, Record], tmp_path: Path, attack: Begin
) -> None:
    begun = attack("a run, its seed given", "again in the same process, methods in the opposite order")
    for name, record in _run_here(_plan(tmp_path)[::-1]).items():
        begun.try_it(name, lambda name=name, record=record: _expect_same(record, reference[name]))


def test_in_worker_processes_that_hash_otherwise(
    reference: dict[str, Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Begin
) -> None:
    begun = attack("a run, its seed given", "in a pool of processes, with other PYTHONHASHSEED and OMP_NUM_THREADS")
    for number, hash_seed in enumerate(HASH_SEEDS[: in_soak(1, 4)]):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        for name in THREAD_VARIABLES:
            monkeypatch.setenv(name, str(2 + number))
        jobs = _plan(tmp_path / hash_seed)[:: (-1) ** number]
        records = run_all(jobs, workers=in_soak(1, 2))
        for job, record in zip(jobs, records, strict=True):
            name = job.folder.name
            begun.try_it(
                f"{name}, {hash_seed}",
                lambda name=name, record=record: _expect_same(record, reference[name]),
            )


def test_stopped_after_every_so_many_steps_and_resumed(
    reference: dict[str, Record], tmp_path: Path, attack: Begin
) -> None:
    begun = attack("a run, its seed given", "stopped after every few steps and resumed, to the end")

    def stop_after(steps: int) -> Callable[[], bool]:
        left = iter([False] * (steps - 1) + [True])
        return lambda: next(left, True)

    def go_on(job: Job, steps: int) -> Record:
        while True:
            try:
                return run_one(job, stop_after(steps))
            except Interrupted:
                pass

    def run_one(job: Job, stopping: Callable[[], bool]) -> Record:
        return execute(job.config, job.folder, resume=True, stopping=stopping)

    for steps in (5, 1, 3)[: in_soak(1, 3)]:
        for job in _plan(tmp_path / str(steps)):
            expected = reference[job.folder.name]
            begun.try_it(
                f"{job.folder.name}, {steps}",
                lambda job=job, steps=steps, expected=expected: _expect_same(go_on(job, steps), expected),
            )


def test_another_seed_gives_other_weights(reference: dict[str, Record], tmp_path: Path) -> None:
    """The comparison above would otherwise prove nothing."""
    other = execute(_configure("sgd", "mlp", seed=1), tmp_path / "other")
    assert other.weights_sha256 != reference["sgd-mlp"].weights_sha256
