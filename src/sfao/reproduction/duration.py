"""How long runs will take: as long as one of the same settings took here, else by a rehearsal of a few steps."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from sfao.data.dataset import load_dataset
from sfao.experiment.config import RunConfig
from sfao.experiment.record import Record
from sfao.reproduction.archive import settings_key
from sfao.reproduction.rehearsal import rehearse
from sfao.reproduction.runs import Plan
from sfao.streams.suite import BENCHMARKS

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


def predict_durations(plan: Plan, data_root: Path | None, *, threads: int = 1) -> dict[Path, Duration]:
    """Return the time of every run that is left to do; each kind of run that none is done of is rehearsed once."""
    known = _known_seconds(plan.done)
    rehearsed: dict[str, float] = {}
    found = {}
    for job in plan.left:
        key = _kind_of(job.config)
        if key in known:
            found[job.folder] = Duration(known[key], is_known=True)
            continue
        if key not in rehearsed:
            dataset = load_dataset(BENCHMARKS[job.config.benchmark].dataset, data_root)
            with _use_threads(threads):
                rehearsed[key] = rehearse(job.config, dataset).seconds
        found[job.folder] = Duration(rehearsed[key])
    return found


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
