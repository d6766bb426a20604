"""Comparisons: the runs of a plan, or of several, done in parallel, those done before left alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sfao.data.sources import Dataset, load_dataset
from sfao.experiment.checkpoint import checkpoint_data
from sfao.experiment.config import read_yaml
from sfao.experiment.errors import ConfigError, FolderError, reraise_as
from sfao.experiment.execute import set_up
from sfao.experiment.folder import CONFIG, check_folder, check_free, check_same_data, finished_record, locked, occupied
from sfao.experiment.pool import Event, Skipped, Watch, run_all
from sfao.experiment.record import Record, describe, timestamp, versions
from sfao.experiment.worker import Failure, Job
from sfao.streams.slicing import sliced
from sfao.streams.suite import BENCHMARKS

#: What the comparison as a whole leaves beside the folders of its runs.
RESULTS = ("comparison.json", "comparison.md")
COMPARING = "comparing"


def places(jobs: Iterable[Job]) -> dict[Path, list[Job]]:
    """The jobs of each comparison, by the folder that holds those of its runs."""
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
) -> list[Record]:
    """Do the jobs that are not done yet, in one pool, and return the records of all, in their order.

    Whatever can be wrong with settings, data or folders is found before anything runs or is written. A run that
    fails leaves a record that says so, and is done again by the next comparison.
    """
    data: dict[Path, dict[str, Any]] = {}
    for place, own in places(jobs).items():
        data |= _checked(own, place, data_root, resume)
    records = {job.folder: record for job in jobs if (record := finished_record(job.folder)) is not None}
    left = [job for job in jobs if job.folder not in records]

    def heard(job: Job, event: Event) -> None:
        if isinstance(event, Failure):
            records[job.folder] = _leave_failure(job, event, data[job.folder])
        elif isinstance(event, Record):
            records[job.folder] = event
        watch(job, event)

    with _held(places(jobs)):
        for job in jobs:
            if job.folder in records:
                watch(job, Skipped(records[job.folder]))
        run_all(
            left,
            workers=workers,
            threads=threads,
            data_root=data_root,
            resume=resume,
            watch=heard,
            stopping=stopping,
        )
    return [records[job.folder] for job in jobs]


def _checked(jobs: Sequence[Job], out: Path, data_root: Path | None, resume: bool) -> dict[Path, dict[str, Any]]:
    """{folder: its data, described}, of jobs that can be done there; whatever is wrong raises what says so."""
    check_free(out, COMPARING)
    for job in jobs:
        check_free(job.folder)
    check_out(out, jobs)
    for job in jobs:
        check_folder(job.folder, job.config, resume=resume)
    dataset = load_dataset(BENCHMARKS[jobs[0].config.benchmark].dataset, data_root)
    _rehearse(jobs, dataset)
    return _checked_data(jobs, dataset)


@contextmanager
def _held(folders: Iterable[Path]) -> Iterator[None]:
    with ExitStack() as held:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(folder, COMPARING))
        yield


def check_out(out: Path, jobs: Sequence[Job]) -> None:
    """Refuse a folder that is no place for this comparison; more methods or seeds may join one that is there."""
    if out.exists() and not out.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {out}")
    if not out.exists() or all(_nothing(path) for path in out.iterdir()):
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


def _nothing(path: Path) -> bool:
    """Hidden, or a folder of hidden files: all that a process may leave that is killed as it begins."""
    return path.name.startswith(".") or (path.is_dir() and all(_nothing(inside) for inside in path.iterdir()))


def _rehearse(jobs: Sequence[Job], dataset: Dataset) -> None:
    """Set up each method once and throw it away: some settings are only wrong together with data and device."""
    for method in dict.fromkeys(job.config.method for job in jobs):
        job = next(job for job in jobs if job.config.method == method)
        with reraise_as(ConfigError, f"{method}: "):
            set_up(job.config, dataset, job.folder)


def _checked_data(jobs: Sequence[Job], dataset: Dataset) -> dict[Path, dict[str, Any]]:
    """Refuse runs that were done, or begun, on other data."""
    fractions = {job.config.fraction for job in jobs}
    described = {fraction: describe(sliced(dataset, fraction)) for fraction in fractions}
    for job in jobs:
        finished = finished_record(job.folder)
        held = checkpoint_data(job.folder) if finished is None else finished.data
        if held is not None:
            check_same_data(job.folder, held, described[job.config.fraction])
    return {job.folder: described[job.config.fraction] for job in jobs}


def _leave_failure(job: Job, failure: Failure, data: dict[str, Any]) -> Record:
    """The record of a run that failed, in its folder unless that is taken or cannot be written."""
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
        finished=timestamp(),
    )
    try:
        with occupied(job.folder, config, resume=True) as finished:
            if finished is None:
                record.save(job.folder)
    except (FolderError, OSError):
        pass  # the caller hears of the failure all the same
    return record
