"""Records by their settings: from folders of runs, or from files in a repository with one record per line."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from sfao.lab.paper.protocol import Series
from sfao.lab.paper.scale import WHOLE, Scale
from sfao.lab.run.config import make_config
from sfao.lab.run.errors import ConfigError, FolderError, reraise_as
from sfao.lab.run.files import write_text
from sfao.lab.run.folder import finished_record
from sfao.lab.run.record import RECORD, Record, list_digests, read_record
from sfao.lab.safe_io import MAX_LINE, iter_lines

#: Settings that do not make a run another one: its seed, and where it was done.
APART = ("seed", "device")
#: Fields of a record that its settings repeat.
SAID_TWICE = ("benchmark", "scenario", "method", "seed")
#: Versions that a table shows of the machine.
VERSIONS = ("device", "machine", "torch", "sfao")


class Archive:
    """Finished runs, found by their settings: not by a name, which could be wrong.

    Of settings that it has no run of, the runs of `others` are found.
    """

    def __init__(self, records: Iterable[Record], others: "Iterable[Archive]" = ()) -> None:
        self._by_key: dict[str, dict[int, Record]] = {}
        self._others = list(others)
        for record in records:
            self._by_key.setdefault(settings_key(record.config), {})[record.seed] = record

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def of(self, series: Series, scale: Scale = WHOLE) -> list[Record]:
        """Return the records of a series, by seed; those on a slice only for that `scale`."""
        key = series_key(series, scale)
        found = next((archive._by_key[key] for archive in (self, *self._others) if key in archive._by_key), {})
        return [found[seed] for seed in sorted(found)]

    @property
    def records(self) -> list[Record]:
        return [record for by_seed in self._by_key.values() for record in by_seed.values()]


@cache
def series_key(series: Series, scale: Scale = WHOLE) -> str:
    """Return the key of the runs of a series."""
    return settings_key(series.config(scale=scale).model_dump())


def settings_key(config: dict[str, Any]) -> str:
    """Return a key that only seed and device do not change; settings that did not exist yet have their defaults."""
    whole = make_config(config).model_dump()
    return json.dumps({name: value for name, value in whole.items() if name not in APART}, sort_keys=True)


def read_runs(folder: Path) -> list[Record]:
    """Return the finished runs under a folder; raise a FolderError that names a record which cannot be read."""
    found = []
    for path in sorted(folder.rglob(RECORD)):
        record = finished_record(path.parent)
        if record is not None:
            _check(record, str(path))
            found.append(record)
    return found


def read_lines(file: Path) -> list[Record]:
    """Return the records of a file; raise a FolderError that names a line which is none."""
    records = []
    for number, line in enumerate(iter_lines(file, MAX_LINE), start=1):
        with reraise_as(FolderError):
            record = read_record(line, f"{file}:{number}")
        _check(record, f"{file}:{number}")
        records.append(record)
    return records


def _check(record: Record, where: str) -> None:
    """Refuse a record whose settings are none or of another run, or that does not tell its data and versions."""
    try:
        _check_settings(record)
        if record.status == "done":
            _check_origin(record)
    except (ConfigError, TypeError, ValueError) as error:
        raise FolderError(f"{where} must be the record of a run, but it is damaged: {error}") from error


def _check_settings(record: Record) -> None:
    settings = make_config(record.config)
    for name in SAID_TWICE:
        known, found = getattr(settings, name), getattr(record, name)
        if known != found:
            raise ValueError(f"`{name}` must be that of `config`, {known!r}, got {found!r}")


def _check_origin(record: Record) -> None:
    if not record.data:
        raise ValueError("`data` must say which data it is of, got nothing")
    for name in VERSIONS:
        if name not in record.versions:
            raise ValueError(f"`versions.{name}` must say what it was made with, got nothing")


def write_lines(file: Path, records: Iterable[Record]) -> None:
    """Write one record per line, in an order that does not depend on when they were done."""
    lines = sorted(
        (record.method, settings_key(record.config), record.seed, json.dumps(record.as_json())) for record in records
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(f"{line[-1]}\n" for line in lines))


def collect(runs: Path, records: Path) -> list[Path]:
    """Copy the finished runs of `runs/PRESET/PLACE` into `records/PRESET/PLACE.jsonl`; return the files written.

    A run that is there already is replaced; slices of the data are left where they are. Nothing is written unless all
    can be.
    """
    found: dict[Path, list[Record]] = {}
    for folder in sorted(path for path in runs.glob("*/*") if path.is_dir()):
        new = [record for record in read_runs(folder) if record.config.get("fraction", 1.0) == 1]
        if new:
            file = records / folder.parent.name / f"{folder.name}.jsonl"
            old = read_lines(file) if file.exists() else []
            found[file] = Archive([*old, *new]).records
            _check_same_data(file, found[file])
    if not found:
        raise FolderError(f"`collect` must be a folder that holds finished runs of whole data sets, got {runs}")
    for file, kept in found.items():
        write_lines(file, kept)
    return list(found)


def _check_same_data(file: Path, records: Iterable[Record]) -> None:
    """Check that the records of a file, which fill one table, are on the same data."""
    records = list(records)
    kinds = dict.fromkeys(f"{record.data['train']:,} training and {record.data['test']:,} test" for record in records)
    if len(kinds) > 1:
        raise FolderError(
            f"{file} must be of runs on the same data, but some are on {' and some on '.join(kinds)} images"
        )
    digests = list_digests(records)
    if len(digests) > 1:
        raise FolderError(
            f"{file} must be of runs on the same data, but some are on images of the digest {digests[0]} and some on "
            f"those of {digests[1]}"
        )
