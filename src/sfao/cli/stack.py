"""--stack: runs that differ in seed and numbers make their steps together, on one device."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sfao.cli.terminal import say

if TYPE_CHECKING:
    from sfao.experiment.runner import Runner
    from sfao.experiment.worker import Job

Stacked = Annotated[
    bool, typer.Option("--stack", help="Runs that differ in seed and numbers share one device as a stack.")
]


def choose_runner(
    stack: bool,
    jobs: "Sequence[Job]",
    launcher: str,
    run: "Runner",
    *,
    workers: int | None = None,
    log: Sequence[str] | None = None,
    quiet: bool,
) -> "Runner":
    """Return what does the runs: with `--stack`, checked against the other options, stacks of them, else `run`."""
    if not stack:
        return run
    from sfao.experiment.errors import ConfigError
    from sfao.experiment.stacked.divide import check_any_stack
    from sfao.experiment.stacked.runner import run_stacked

    if launcher != "local":
        raise ConfigError(f"`--stack` runs all together in one process here; leave out --launcher {launcher}")
    if workers is not None:
        raise ConfigError(f"`--stack` runs all together in one process; leave out --jobs, got {workers}")
    if log:
        raise ConfigError(f"`--stack` has no loggers, only steps.jsonl in each folder; leave out --log, got {log[0]}")
    if any(job.config.guard is not None for job in jobs):
        raise ConfigError("`--stack` has no guard, which goes back in one run at a time; leave out one of the two")
    check_any_stack(jobs)
    return partial(run_stacked, say=_be_quiet if quiet else _say)


def _say(line: str) -> None:
    say(line)


def _be_quiet(line: str) -> None:
    pass
