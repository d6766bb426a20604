"""The runs that tables need: those that are done, those left to do, and those without data on this machine."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import MissingData
from sfao.lab.data.root import resolve_root
from sfao.lab.data.sets import get_description
from sfao.lab.paper.archive import series_key, settings_key
from sfao.lab.paper.series import PRESETS, WHOLE, Scale, Series
from sfao.lab.run.config import read_yaml
from sfao.lab.run.errors import FolderError
from sfao.lab.run.folder import CONFIG, check_folder, check_same_data, finished_record
from sfao.lab.run.jobs import Job
from sfao.lab.run.loop import CHECKPOINT_SECONDS
from sfao.lab.run.record import Record, describe_dataset
from sfao.lab.streams.seeding import slice_dataset
from sfao.lab.streams.suite import BENCHMARKS


@dataclass
class Plan:
    """Every run once, even if several tables need it."""

    done: dict[Path, Record] = field(default_factory=dict)
    left: list[Job] = field(default_factory=list)
    #: {data set: what is missing, and how to get it}
    absent: dict[str, str] = field(default_factory=dict)
    #: {folder of the run: done, diverged, unfinished, to do or no data}
    states: dict[Path, str] = field(default_factory=dict)

    def expected_seconds(self) -> dict[Path, float]:
        """Return the time of runs left to do: the mean of finished runs that differ in the seed alone, if any."""
        times: dict[str, list[float]] = {}
        for record in self.done.values():
            times.setdefault(_time_key(record.config, record.versions.get("device", "")), []).append(record.seconds)
        keys = {job.folder: _time_key(job.config.model_dump(), job.config.device) for job in self.left}
        return {folder: fmean(times[key]) for folder, key in keys.items() if key in times}


def _time_key(config: dict[str, Any], device: str) -> str:
    return f"{device.partition(':')[0]} {settings_key(config)}"


def plan_runs(
    series: Iterable[Series],
    seeds: Sequence[int],
    out: Path,
    *,
    device: str = "cpu",
    scale: Scale = WHOLE,
    data_root: Path | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Plan:
    """Sort the runs by what is left to do; nothing is written. Raises a FolderError for a folder with another run.

    A run that is done under another preset with the same settings is not repeated.
    """
    if out.exists() and not out.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {out}")
    plan, wanted = Plan(), list(dict.fromkeys(series))
    plan.absent = _find_absent(wanted, data_root)
    for one in wanted:
        for seed in seeds:
            folder = one.folder(out, seed, scale)
            _refuse_links(folder, out)
            job = Job(one.config(seed, scale=scale, device=device), folder, checkpoint_seconds)
            _add(plan, job, [folder, *_list_twins(one, seed, out, scale)], has_data=one.dataset not in plan.absent)
    for dataset in {BENCHMARKS[job.config.benchmark].dataset for job in plan.left}:
        here = describe_dataset(slice_dataset(load_dataset(dataset, data_root), scale.fraction))
        for folder, record in plan.done.items():
            if record.data.get("name") == dataset:
                check_same_data(folder, record.data, here)
    return plan


def _refuse_links(folder: Path, out: Path) -> None:
    """Refuse a folder that lies behind a link below `out`: tables and runs would be written elsewhere."""
    for part in (folder, *folder.parents):
        if part == out:
            return
        if part.is_symlink():
            raise FolderError(f"`out` must be a folder without links, got the link {part}")


def _find_absent(wanted: Sequence[Series], data_root: Path | None) -> dict[str, str]:
    absent = {}
    for dataset in dict.fromkeys(series.dataset for series in wanted):
        try:
            get_description(dataset).find_layout(resolve_root(data_root))
        except MissingData as error:
            absent[dataset] = str(error)
    return absent


def _list_twins(series: Series, seed: int, out: Path, scale: Scale) -> Iterator[Path]:
    """Yield the folders of the same run under the other presets."""
    for preset in PRESETS:
        twin = replace(series, preset=preset)
        if preset != series.preset and series_key(twin, scale) == series_key(series, scale):
            yield twin.folder(out, seed, scale)


def _add(plan: Plan, job: Job, places: Sequence[Path], *, has_data: bool) -> None:
    for place in places:
        record = _find_record(job, place)
        if record is not None:
            plan.done[place] = record
            plan.states[job.folder] = record.status
            return
    if not has_data:
        plan.states[job.folder] = "no data"
        return
    check_folder(job.folder, job.config, resume=True)
    plan.states[job.folder] = "unfinished" if (job.folder / CONFIG).exists() else "to do"
    plan.left.append(job)


def _find_record(job: Job, folder: Path) -> Record | None:
    """Return the record of this run if it is done, on any device."""
    record = finished_record(folder)
    if record is not None:
        device = read_yaml(folder / CONFIG).get("device") if (folder / CONFIG).exists() else None
        check_folder(folder, job.config.model_copy(update={"device": device}), resume=True)
    return record
