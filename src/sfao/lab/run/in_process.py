"""Runs one after the other in this process: for data, models and methods that no other process could import."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from sfao.lab.run.execute import execute
from sfao.lab.run.pool import Watch
from sfao.lab.run.record import Record
from sfao.lab.run.worker import Begun, Job


def run_here(jobs: Sequence[Job], *, watch: Watch, workers: int | None, threads: int, **how: Any) -> list[Record]:
    """Run the jobs as `run_all` does, but here; an error of a run ends them all, with its traceback."""
    records = []
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for job in jobs:
            watch(job, Begun())
            how["checkpoint_seconds"] = job.checkpoint_seconds
            records.append(execute(job.config, job.folder, report=partial(watch, job), **how))
            watch(job, records[-1])
    finally:
        torch.set_num_threads(before)
    return records
