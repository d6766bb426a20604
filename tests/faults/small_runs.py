"""Runs of a few steps that are killed, damaged and refused, and what must be the same of them in the end."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from sfao.lab.methods import METHODS
from sfao.lab.run import loop
from sfao.lab.run.config import RunConfig, configure
from sfao.lab.run.loop import execute
from sfao.lab.run.record import Record
from tests.lab.methods.scenarios import set_scenario

#: Two tasks of three steps, after each of which a checkpoint is saved.
TINY = {"epochs": 1, "model.hidden": 6, "tasks": 2, "batch_size": 34, "fraction": 0.05, "lr": 0.05}
#: Every way to hold a memory that a run may have, by the settings that ask for it.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, set_scenario(name)) for name in METHODS},
    "sfao, factored": ("sfao", {"options.storage": "factored"}),
}


def make_config(name: str = "sgd", seed: int = 0, **settings: Any) -> RunConfig:
    method, own = VARIANTS[name]
    return configure("split-mnist-5k", method, seed=seed, settings={**TINY, **own, **settings})


def save_after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let checkpoints depend on steps alone: no run then saves more or less often on a busy machine."""
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", float("inf"))
    monkeypatch.setattr(loop, "TELEMETRY_EVERY", 1)


def do_run(config: RunConfig, folder: Path, **how: Any) -> Record:
    return execute(config, folder, resume=True, checkpoint_seconds=-1.0, **how)


@cache
def _do_whole(name: str, seed: int) -> tuple[dict[str, Any], bytes]:
    with TemporaryDirectory() as folder:
        record = do_run(make_config(name, seed), Path(folder) / "run")
        return list_results(record), (Path(folder) / "run" / "steps.jsonl").read_bytes()


def check_same(record: Record, folder: Path, name: str = "sgd", seed: int = 0) -> None:
    """Assert that a run ended with the bits of one that nobody disturbed; `save_after_every_step` must be called."""
    results, steps = _do_whole(name, seed)
    assert list_results(record) == results
    assert (folder / "steps.jsonl").read_bytes() == steps
    left = {path.name for path in folder.iterdir()}
    assert left == {".lock", "config.yaml", "record.json", "steps.jsonl"}, f"left behind: {left}"


def list_results(record: Record) -> dict[str, Any]:
    """Return what does not depend on when and how fast a run was."""
    apart = ("seconds", "step_ms", "finished", "warnings", "versions")
    return {name: value for name, value in vars(record).items() if name not in apart}


def in_child(work: Callable[[], None]) -> int:
    """Do the work in a process forked from this one, which is gone afterwards; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
