"""The runs that tables need: those that are done, those left to do, and those without data here."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import MissingData
from sfao.lab.data.root import resolve_root
from sfao.lab.data.sets import get_description
from sfao.lab.paper.archive import series_key
from sfao.lab.paper.protocol import PRESETS, Series
from sfao.lab.paper.scale import WHOLE, Scale
from sfao.lab.run.config import read_yaml
from sfao.lab.run.errors import FolderError
from sfao.lab.run.folder import CONFIG, check_folder, finished_record
from sfao.lab.run.record import Record, describe_dataset, is_same_data
from sfao.lab.run.run import CHECKPOINT_SECONDS
from sfao.lab.run.worker import Job
from sfao.lab.streams.seeding import slice_dataset
from sfao.lab.streams.suite import BENCHMARKS


@dataclass
class Plan:
    """Every run once, though several tables may need it."""

    done: list[Record] = field(default_factory=list)
    left: list[Job] = field(default_factory=list)
    #: {dataset: message that says what is missing and how to get it}
    absent: dict[str, str] = field(default_factory=dict)
    #: {folder: done, unfinished, to do or no data}
    states: dict[Path, str] = field(default_factory=dict)
    #: {folder: where the run is}, of runs that were done under another preset.
    elsewhere: dict[Path, Path] = field(default_factory=dict)

    def has_data(self, series: Series) -> bool:
        return series.dataset not in self.absent


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
    """Find the runs that are done and those left; raise a FolderError for a folder that holds something else.

    Nothing is written.
    """
    if out.exists() and not out.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {out}")
    wanted = list(dict.fromkeys(series))
    plan = Plan(absent=_find_absent(wanted, data_root))
    for one in wanted:
        for seed in seeds:
            config, folder = one.config(seed, scale=scale, device=device), one.folder(out, seed, scale)
            job = Job(config, folder, checkpoint_seconds)
            twins = [replace(job, folder=folder) for folder in _list_twins(one, seed, out, scale)]
            _sort(plan, one, job, twins)
    for dataset in {BENCHMARKS[job.config.benchmark].dataset for job in plan.left}:
        _check_data([r for r in plan.done if r.data["name"] == dataset], dataset, scale.fraction, data_root)
    return plan


def _find_absent(wanted: Sequence[Series], data_root: Path | None) -> dict[str, str]:
    absent = {}
    for dataset in dict.fromkeys(series.dataset for series in wanted):
        try:
            get_description(dataset).find_layout(resolve_root(data_root))
        except MissingData as error:
            absent[dataset] = str(error)
    return absent


def _list_twins(series: Series, seed: int, out: Path, scale: Scale) -> Iterator[Path]:
    """Yield the folders of the same run under other presets: one that is done there need not be done again."""
    for preset in PRESETS:
        twin = replace(series, preset=preset)
        if preset != series.preset and series_key(twin, scale) == series_key(series, scale):
            yield twin.folder(out, seed, scale)


def _sort(plan: Plan, series: Series, job: Job, twins: Sequence[Job]) -> None:
    found = ((_find_record(one), one.folder) for one in (job, *twins))
    record, folder = next((pair for pair in found if pair[0] is not None), (None, job.folder))
    if record is not None:
        plan.done.append(record)
        if folder != job.folder:
            plan.elsewhere[job.folder] = folder
        plan.states[job.folder] = "done" if record.status == "done" else record.status
    elif not plan.has_data(series):
        plan.states[job.folder] = "no data"
    else:
        check_folder(job.folder, job.config, resume=True)
        plan.states[job.folder] = "unfinished" if (job.folder / CONFIG).exists() else "to do"
        plan.left.append(job)


def _find_record(job: Job) -> Record | None:
    """Return the record of a run that is done, on any device; None when it is not."""
    record = finished_record(job.folder)
    if record is not None:
        device = read_yaml(job.folder / CONFIG).get("device") if (job.folder / CONFIG).exists() else None
        there = replace(job, config=job.config.model_copy(update={"device": device}))
        check_folder(there.folder, there.config, resume=True)
    return record


def _check_data(records: Sequence[Record], dataset: str, fraction: float, data_root: Path | None) -> None:
    """Check that runs still to do will be on the data of those that are done."""
    if not records:
        return
    here = describe_dataset(slice_dataset(load_dataset(dataset, data_root), fraction))
    for record in records:
        if not is_same_data(record.data, here):
            other = " with other values" if record.data.get("digest", here["digest"]) != here["digest"] else ""
            raise FolderError(
                f"`out` must hold runs on the same data, but {record.method} seed {record.seed} on {record.benchmark} "
                f"had {record.data['train']:,} training images of {dataset}, and here are {here['train']:,}{other}"
            )
