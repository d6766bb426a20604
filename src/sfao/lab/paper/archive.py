"""Records of finished runs, found by their settings, in folders of runs or in files with one record per line."""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from sfao.lab.paper.series import WHOLE, Scale, Series
from sfao.lab.run.config import complete_settings
from sfao.lab.run.errors import FolderError, reraise_as
from sfao.lab.run.files import write_text
from sfao.lab.run.folder import finished_record
from sfao.lab.run.record import RECORD, Record, is_same_data, read_record
from sfao.lab.safe_io import MAX_LINE, iter_lines

#: Settings that two runs of one series may differ in.
NOT_IN_KEY = ("seed", "device")


class Archive:
    """Finished runs by their settings; the name of a folder or a file does not matter.

    Of several runs with the same settings and seed, the last one counts.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._runs: dict[str, dict[int, Record]] = {}
        for record in records:
            self._runs.setdefault(settings_key(record.config), {})[record.seed] = record

    def __len__(self) -> int:
        return sum(map(len, self._runs.values()))

    def __iter__(self) -> Iterator[Record]:
        return (record for runs in self._runs.values() for record in runs.values())

    def find(self, series: Series, scale: Scale = WHOLE) -> list[Record]:
        """Return the records of a series, sorted by seed."""
        found = self._runs.get(series_key(series, scale), {})
        return [found[seed] for seed in sorted(found)]

    def complete_from(self, others: Iterable[Record]) -> "Archive":
        """Return an archive that also has the runs of `others` with settings that this one has no run of."""
        return Archive([*(record for record in others if settings_key(record.config) not in self._runs), *self])


@cache
def series_key(series: Series, scale: Scale = WHOLE) -> str:
    """Return the key of the runs of a series."""
    return settings_key(series.config(scale=scale).model_dump())


def settings_key(config: dict[str, Any]) -> str:
    """Return the settings as text, without the seed and the device; settings that are not given have their defaults.

    Nothing is imported: settings that name code which is not loaded stay as they are.
    """
    settings = complete_settings(config)
    return json.dumps({name: value for name, value in settings.items() if name not in NOT_IN_KEY}, sort_keys=True)


def read_runs(folder: Path) -> list[Record]:
    """Return the finished runs below a folder; raise a FolderError that names a damaged record."""
    found = []
    for path in sorted(folder.rglob(RECORD)):
        record = finished_record(path.parent)
        if record is not None:
            found.append(record)
    return found


def read_lines(file: Path) -> list[Record]:
    """Return the records in a file; raise a FolderError that names a damaged line."""
    records = []
    for number, line in enumerate(iter_lines(file, MAX_LINE), start=1):
        with reraise_as(FolderError):
            records.append(read_record(line, f"{file}:{number}"))
    return records


def write_lines(file: Path, records: Iterable[Record]) -> None:
    """Write one record per line, sorted by method, settings and seed."""
    lines = sorted(
        (record.method, settings_key(record.config), record.seed, json.dumps(record.as_json())) for record in records
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(f"{line[-1]}\n" for line in lines))


def collect(runs: Path, records: Path) -> list[Path]:
    """Copy the finished runs in `runs/PRESET/PLACE` to `records/PRESET/PLACE.jsonl`; return the files written.

    A run replaces the kept one with the same settings and seed. Runs on a fraction of the data are left out.
    """
    kept: dict[Path, Archive] = {}
    for folder in sorted(path for path in runs.glob("*/*") if path.is_dir()):
        new = [record for record in read_runs(folder) if record.config.get("fraction", 1.0) == 1]
        if new:
            file = records / folder.parent.name / f"{folder.name}.jsonl"
            kept[file] = Archive([*(read_lines(file) if file.exists() else []), *new])
            check_same_data(list(kept[file]), str(file))
    if not kept:
        raise FolderError(f"`RUNS` must hold finished runs of `sfao reproduce` on whole data sets, got {runs}")
    for file, archive in kept.items():
        write_lines(file, archive)
    return list(kept)


def check_same_data(records: list[Record], what: str) -> None:
    """Check that all records are of the same images."""
    for record in records[1:]:
        if not is_same_data(record.data, records[0].data):
            raise FolderError(
                f"{what} must be of runs on the same data, but {_describe(record)} differs from {_describe(records[0])}"
            )


def _describe(record: Record) -> str:
    data = record.data
    digest = f", digest {data['digest'][:12]}" if data.get("digest") else ""
    images = f"{data.get('train', 0):,} training images of {data.get('name')}{digest}"
    return f"{record.method} seed {record.seed} ({images})"
