"""Real runs of a few seconds on the embedded digits, and reports of them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from filelock import FileLock

from sfao.lab.metrics import summary
from sfao.lab.report.runs import find_unfinished_runs, group_runs, load_runs, write_notices
from sfao.lab.report.write import PAGE, make_page
from sfao.lab.run.config import configure
from sfao.lab.run.loop import execute
from tests.records import change_record, read_values

SMALL = {"epochs": 1, "tasks": 2, "batch_size": 64, "model.hidden": 16}
HOSTILE = "<script>alert(1)</script>"
#: Names of any length, in any script and direction.
FOREIGN = (f"x:{'long_' * 40}", "方法:连续学习而不遗忘的选择性梯度投影优化器", "طريقة:التعلم المستمر بدون نسيان")


def run(folder: Path, method: str, seed: int = 0, benchmark: str = "split-mnist-5k", **settings: object) -> Path:
    execute(configure(benchmark, method, seed=seed, settings={**SMALL, **settings}), folder)
    return folder


def comparison_of_four(folder: Path) -> Path:
    """Three methods over two seeds, a fourth with a rate of learning that diverges, a run of another benchmark."""
    for seed in (0, 1):
        for method in ("sgd", "ewc"):
            run(folder / f"{method}-{seed}", method, seed)
        run(folder / f"sfao-{seed}", "sfao", seed, **{"options.samples": 10, "options.storage": "dense"})
        run(folder / f"si-{seed}", "si", seed, lr=1e30 if seed else 0.01)
    run(folder / "permuted-0", "sgd", benchmark="permuted-mnist-5k")
    return folder


def share(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that is made once for all test processes of a session; not to be written to."""
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            made = factory.mktemp("made") / name
            make(made)
            made.rename(shared)
    return shared


def share_comparison(factory: pytest.TempPathFactory) -> Path:
    return share(factory, "comparison-of-four", comparison_of_four)


def share_report(factory: pytest.TempPathFactory) -> Path:
    """The page of the comparison of four."""
    folder = share_comparison(factory)
    return share(factory, "report-of-four", lambda out: report(folder, out)) / PAGE


def share_hostile_report(factory: pytest.TempPathFactory) -> Path:
    """The page of runs that say markup."""
    source = share_comparison(factory) / "sfao-0"
    runs = share(factory, "hostile-runs", lambda folder: hostile_runs(source, folder))
    return share(factory, "hostile-report", lambda out: report(runs, out)) / PAGE


def edited(source: Path, folder: Path, **changes: object) -> Path:
    """A copy of a run whose record says something else."""
    shutil.copytree(source, folder)
    change_record(folder, **changes)
    return folder


def varied(source: Path, folder: Path, chance: Random, **changes: object) -> Path:
    """A copy of a run whose accuracies and costs are others, and agree with each other."""
    values = read_values(source)
    matrix = [[min(1.0, max(0.0, x + chance.uniform(-0.1, 0.1))) for x in line] for line in values["accuracy_matrix"]]
    made = {
        "accuracy_matrix": matrix,
        "metrics": summary(matrix, values["initial_accuracy"]),
        "seconds": values["seconds"] * chance.uniform(0.5, 2),
        "memory_bytes": int(values["memory_bytes"] * chance.uniform(0.5, 2)),
    }
    return edited(source, folder, **{**made, **changes})


def report(folder: Path, out: Path) -> Path:
    """Write the page alone, without tables and figures, and return its path."""
    runs = load_runs([folder])
    groups = group_runs(runs)
    out.mkdir(parents=True, exist_ok=True)
    page = make_page(groups, write_notices(runs, groups, find_unfinished_runs([folder])))
    (out / PAGE).write_bytes(page.encode("utf-8", "replace"))
    return out / PAGE


def hostile_runs(source: Path, folder: Path) -> Path:
    """Markup wherever a run may say something: folder, method, error, warnings, settings, versions."""
    # A folder cannot have a slash in its name, but a run may lie one folder deeper.
    edited(
        source,
        folder / HOSTILE,
        method=HOSTILE,
        warnings=[f"{HOSTILE} {{{{ 7 * 7 }}}}"],
        versions={HOSTILE: HOSTILE},
        weights_sha256=HOSTILE,
    )
    edited(source, folder / "<img src=x onerror=alert(1)>", status="failed", metrics={}, error=f'"{HOSTILE}&')
    edited(source, folder / "' onmouseover=alert(1) '", config={HOSTILE: HOSTILE, "model": {"name": HOSTILE}})
    for number, name in enumerate(FOREIGN):
        edited(source, folder / f"{name[:60]} {number}", method=name, error=name, warnings=[name * 3])
    return folder
