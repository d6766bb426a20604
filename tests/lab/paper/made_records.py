"""Records like those of real runs, with chosen numbers."""

from dataclasses import replace

from sfao.lab.metrics import summary
from sfao.lab.paper.series import Scale
from sfao.lab.run.record import Record

FULL = {"train": 60000, "test": 10000, "complete": True, "embedded": False}


def record(
    series, seed=0, last=0.5, *, before=0.9, fraction=1.0, device="cpu", data=None, tasks=None, **changes
) -> Record:
    """Every task reaches `before` when it is learned and all end at `last` (one number, or one a task)."""
    config = series.config(seed, scale=Scale(fraction), device=device)
    count = (
        tasks or config.tasks or {"permuted-mnist": 3, "split-mnist": 5, "split-cifar10": 5}.get(config.benchmark, 10)
    )
    final = list(last) if isinstance(last, (list, tuple)) else [last] * count
    matrix = [[before if task <= after else 0.5 for task in range(count)] for after in range(count - 1)] + [final]
    initial = [0.5] * count
    known = Record(
        benchmark=config.benchmark,
        scenario=config.scenario,
        method=config.method,
        seed=seed,
        status="done",
        accuracy_matrix=matrix,
        initial_accuracy=initial,
        metrics=summary(matrix, initial),
        data={"name": series.dataset, **FULL, **(data or {})},
        config=config.model_dump(),
        versions={"torch": "2", "sfao": "0", "device": device, "machine": "x86_64"},
    )
    return replace(known, **changes)
