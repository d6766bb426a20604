"""Comparisons: the runs of one or several plans, in parallel, without those that are finished already."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sfao.lab.data.dataset import Dataset
from sfao.lab.run.checkpoint import read_label
from sfao.lab.run.config import read_yaml
from sfao.lab.run.errors import ConfigError, FolderError, reraise_as
from sfao.lab.run.files import check_free, lock_folder
from sfao.lab.run.folder import (
    CONFIG,
    check_folder,
    check_label,
    check_record,
    clear_finished,
    finished_record,
    occupy,
)
from sfao.lab.run.jobs import Begun, Event, Failure, Job, Refill, Runner, Skipped, Watch
from sfao.lab.run.loop import execute, set_up
from sfao.lab.run.pool import run_all
from sfao.lab.run.record import Record, describe_dataset, timestamp, versions
from sfao.lab.run.run_log import digest_steps, parse_loggers
from sfao.lab.streams.seeding import slice_dataset
from sfao.lab.streams.suite import BENCHMARKS

#: Files of the comparison as a whole, beside the folders of its runs.
RESULTS = ("comparison.json", "comparison.md")
COMPARING = "comparing"


def jobs_by_folder(jobs: Iterable[Job]) -> dict[Path, list[Job]]:
    """Group the jobs by the folder of their comparison, which holds the folders of the runs."""
    found: dict[Path, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.folder.parent, []).append(job)
    return found


def compare(
    jobs: Sequence[Job],
    *,
    data_root: Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    threads: int = 1,
    watch: Watch = lambda job, event: None,
    stopping: Callable[[], bool] = lambda: False,
    run: Runner = run_all,
    log: Sequence[str] = (),
) -> list[Record]:
    """Run the jobs that are not finished yet, in one pool, and return the records of all jobs in their order.

    Each run logs to the loggers that `log` names. These, settings, data and folders are checked before anything runs
    or is written. A run that fails leaves a record that says so, and is repeated by the next comparison.
    """
    loggers = parse_loggers(log)
    data: dict[Path, dict[str, Any]] = {}
    for place, own in jobs_by_folder(jobs).items():
        data |= _check_jobs(own, place, data_root, resume)
    records = {job.folder: record for job in jobs if (record := finished_record(job.folder)) is not None}
    left = [job for job in jobs if job.folder not in records]

    def hear(job: Job, event: Event) -> None:
        if isinstance(event, Failure):
            records[job.folder] = leave_failure(job, event, data[job.folder])
        elif isinstance(event, Record):
            records[job.folder] = event
        watch(job, event)

    with _lock_folders(jobs_by_folder(jobs)):
        for job in jobs:
            if job.folder in records:
                clear_finished(job.folder)
                watch(job, Skipped(records[job.folder]))
        run(
            left,
            workers=workers,
            threads=threads,
            data_root=data_root,
            resume=resume,
            watch=hear,
            stopping=stopping,
            log=loggers,
        )
    return [records[job.folder] for job in jobs]


def run_here(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    threads: int = 1,
    data_root: Path | None = None,
    resume: bool = False,
    watch: Watch = lambda job, event: None,
    stopping: Callable[[], bool] = lambda: False,
    refill: Refill = lambda: (),
    log: Sequence[str] = (),
) -> list[Record]:
    """Run jobs one after the other in this process, for data, models and methods that no other one could import.

    An error of a run ends them all, with its traceback.
    """
    records, waiting = [], list(jobs)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    how: dict[str, Any] = {"data_root": data_root, "resume": resume, "stopping": stopping, "log": log}
    try:
        while waiting := waiting or list(refill()):
            job = waiting.pop(0)
            watch(job, Begun())
            seconds = job.checkpoint_seconds
            record = execute(job.config, job.folder, checkpoint_seconds=seconds, report=partial(watch, job), **how)
            records.append(record)
            watch(job, record)
    finally:
        torch.set_num_threads(before)
    return records


def _check_jobs(jobs: Sequence[Job], out: Path, data_root: Path | None, resume: bool) -> dict[Path, dict[str, Any]]:
    """Check that the jobs can be run in this folder; return {folder: description of its data}."""
    check_free(out, COMPARING)
    for job in jobs:
        check_free(job.folder)
    check_out(out, jobs)
    for job in jobs:
        check_folder(job.folder, job.config, resume=resume)
    dataset = BENCHMARKS[jobs[0].config.benchmark].load(data_root)
    for method in dict.fromkeys(job.config.method for job in jobs):
        # Each method is set up once and discarded: some settings are only wrong together with data and device.
        job = next(job for job in jobs if job.config.method == method)
        with reraise_as(ConfigError, f"{method}: "):
            set_up(job.config, dataset, job.folder)
    return _check_data(jobs, dataset)


@contextmanager
def _lock_folders(folders: Iterable[Path]) -> Iterator[None]:
    with ExitStack() as held:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock_folder(folder, COMPARING))
        yield


def check_out(out: Path, jobs: Sequence[Job]) -> None:
    """Refuse a folder that holds anything but this comparison, to which methods and seeds may be added."""
    if out.exists() and not out.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {out}")
    if not out.exists() or all(_is_empty(path) for path in out.iterdir()):
        return
    if (out / CONFIG).exists():
        raise FolderError(f"`out` must be new or hold a comparison, but {out} holds a single run")
    runs = sorted(path.parent for path in out.glob(f"*/{CONFIG}"))
    if not runs and not any((out / name).exists() for name in RESULTS):
        raise FolderError(f"`out` must be new or hold a comparison, but {out} holds other files")
    benchmark = jobs[0].config.benchmark
    for folder in runs:
        held = read_yaml(folder / CONFIG).get("benchmark")
        if held != benchmark:
            raise FolderError(f"`out` must be new or hold runs of {benchmark}, but {folder} is of {held}")


def _is_empty(path: Path) -> bool:
    """Return True for a hidden path or a folder of hidden files: a process killed at its start leaves no more."""
    return path.name.startswith(".") or (path.is_dir() and all(_is_empty(inside) for inside in path.iterdir()))


def _check_data(jobs: Sequence[Job], dataset: Dataset) -> dict[Path, dict[str, Any]]:
    """Refuse runs that were finished, or started, on other data; return {folder: description of its data}."""
    fractions = {job.config.fraction for job in jobs}
    described = {fraction: describe_dataset(slice_dataset(dataset, fraction)) for fraction in fractions}
    for job in jobs:
        finished, data = finished_record(job.folder), described[job.config.fraction]
        if finished is not None:
            check_record(job.folder, finished, job.config, data)
        elif (label := read_label(job.folder)) is not None:
            check_label(job.folder, label, job.config, data)
    return {job.folder: described[job.config.fraction] for job in jobs}


def leave_failure(job: Job, failure: Failure, data: dict[str, Any]) -> Record:
    """Return the record of a failed run, saved in its folder unless that is in use or cannot be written."""
    config = job.config
    record = Record(
        benchmark=config.benchmark,
        scenario=config.scenario,
        method=config.method,
        seed=config.seed,
        status="failed",
        error=failure.error,
        data=data,
        config=config.model_dump(),
        versions=versions(config.device),
        steps_sha256=digest_steps(job.folder),
        finished=timestamp(),
    )
    try:
        with occupy(job.folder, config, resume=True) as finished:
            if finished is None:
                record.save(job.folder)
    except (FolderError, OSError):
        pass  # the caller gets the failure anyway
    return record
