"""How long runs will take: as long as one of the same settings took here, else by a rehearsal of a few steps."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from sfao.lab.console import shorten
from sfao.lab.data.dataset import load_dataset
from sfao.lab.paper.archive import settings_key
from sfao.lab.paper.rehearsal import rehearse
from sfao.lab.paper.runs import Plan
from sfao.lab.run.config import RunConfig
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.record import Record
from sfao.lab.streams.suite import BENCHMARKS

CAVEAT = (
    "~: predicted from a few steps of each kind of run, for a machine that does nothing else; expect a third to three "
    "times as much. Without ~: as long as a finished run took."
)
#: The option that changes what a gate decides, and hardly the time that it takes.
THRESHOLD = "accept_above"


@dataclass(frozen=True)
class Duration:
    """Seconds that a run takes; `is_known` from one that has been done."""

    seconds: float
    is_known: bool = False

    def __str__(self) -> str:
        return f"{'' if self.is_known else '~'}{format_seconds(self.seconds)}"


@dataclass(frozen=True)
class Prediction:
    """{run: its time} of the runs that are left to do, and {run: why} of those that could not be rehearsed here."""

    durations: dict[Path, Duration]
    unknown: dict[Path, str]


def predict_durations(plan: Plan, data_root: Path | None, *, threads: int = 1) -> Prediction:
    """Predict the time of every run that is left to do; each kind of run that none is done of is rehearsed once."""
    told: dict[str, Duration | str] = {
        kind: Duration(seconds, is_known=True) for kind, seconds in _known_seconds(plan.done).items()
    }
    for job in plan.left:
        kind = _kind_of(job.config)
        if kind not in told:
            told[kind] = _try_rehearsal(job.config, data_root, threads)
    of_run = {job.folder: told[_kind_of(job.config)] for job in plan.left}
    return Prediction(
        {folder: own for folder, own in of_run.items() if isinstance(own, Duration)},
        {folder: own for folder, own in of_run.items() if isinstance(own, str)},
    )


def _try_rehearsal(config: RunConfig, data_root: Path | None, threads: int) -> Duration | str:
    """Return the time of a run, or why it cannot be rehearsed: no such device, too little memory."""
    dataset = load_dataset(BENCHMARKS[config.benchmark].dataset, data_root)
    try:
        with _use_threads(threads):
            return Duration(rehearse(config, dataset).seconds)
    except (ConfigError, ValueError, RuntimeError, MemoryError) as error:
        return shorten(" ".join(str(error).split()) or type(error).__name__, 200)


def _known_seconds(records: Sequence[Record]) -> dict[str, float]:
    """Return {kind: mean seconds} of runs that ended well."""
    times: dict[str, list[float]] = {}
    for record in records:
        if record.status == "done":
            times.setdefault(_kind_of_settings(record.config, record.versions["device"]), []).append(record.seconds)
    return {kind: sum(own) / len(own) for kind, own in times.items()}


def _kind_of(config: RunConfig) -> str:
    return _kind_of_settings(config.model_dump(), config.device.partition(":")[0])


def _kind_of_settings(settings: dict[str, object], device: str) -> str:
    """Return a key that runs share which take as long: seed and threshold do not matter, the device does."""
    options = settings.get("options")
    kept = {name: value for name, value in options.items() if name != THRESHOLD} if isinstance(options, dict) else {}
    return f"{device} {settings_key({**settings, 'options': kept})}"


def sum_up(durations: Sequence[Duration], workers: int | None) -> float:
    """Return the seconds that so many workers, by default one per core, take for all runs."""
    if not durations:
        return 0.0
    seconds = [duration.seconds for duration in durations]
    return max(max(seconds), sum(seconds) / min(workers or os.cpu_count() or 1, len(seconds)))


def format_seconds(seconds: float) -> str:
    """Return a time as one would say it: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


@contextmanager
def _use_threads(threads: int) -> Iterator[None]:
    """Compute with as many threads as a run does."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
