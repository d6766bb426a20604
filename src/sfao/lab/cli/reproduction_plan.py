"""The plan of `sfao reproduce --dry-run`, as JSON and on a terminal: its runs, their states, and how long they take."""

from collections.abc import Mapping, Sequence
from os.path import commonpath
from pathlib import Path
from typing import Any

from sfao.lab.cli.terminal import console, print_json, table
from sfao.lab.paper.duration import CAVEAT, Duration, Prediction, format_seconds, predict_durations, sum_up
from sfao.lab.paper.runs import Plan
from sfao.lab.run.worker import Job


def show_plan(
    plan: Plan, pools: Mapping[int | None, Sequence[Job]], threads: int, data_root: Path | None, as_json: bool
) -> None:
    """Show every run, its state, and about how long it would take, after a rehearsal of each kind."""
    predicted = predict_durations(plan, data_root, threads=threads)
    known = predicted.durations
    total = sum(
        sum_up([known[job.folder] for job in jobs if job.folder in known], workers) for workers, jobs in pools.items()
    )
    if as_json:
        print_json(_as_json(plan, known, total))
    else:
        _print(plan, predicted, total)


def _as_json(plan: Plan, durations: Mapping[Path, Duration], total: float) -> dict[str, Any]:
    return {
        "runs": {str(folder): state for folder, state in plan.states.items()},
        "absent": plan.absent,
        "seconds": {str(folder): duration.seconds for folder, duration in durations.items()},
        "seconds_in_all": total,
    }


def _print(plan: Plan, predicted: Prediction, total: float) -> None:
    durations = predicted.durations
    # Where a folder has a long name, the columns beside it would have no room.
    shared = Path(commonpath(folder.parent for folder in plan.states))
    listed = table("run", "state", "about")
    for folder, state in plan.states.items():
        listed.add_row(str(folder.relative_to(shared)), state, str(durations.get(folder, "")))
    screen = console()
    screen.print(f"{shared}:", soft_wrap=True)
    screen.print(listed)
    states = list(plan.states.values())
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    screen.print(f"{len(states)} runs: {', '.join(f'{count} {state}' for state, count in counts.items())}")
    if durations:
        screen.print(f"In all about {format_seconds(total)}. {CAVEAT}")
    for reason in dict.fromkeys(predicted.unknown.values()):
        count = list(predicted.unknown.values()).count(reason)
        screen.print(f"{count} runs could not be tried here, and have no time: {reason}")
