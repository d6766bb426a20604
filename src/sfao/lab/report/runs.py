"""Finished runs, read back from their folders."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

from sfao.lab.methods import METHODS
from sfao.lab.report.comparison import BOUND, group_records
from sfao.lab.report.errors import ReportError
from sfao.lab.run.errors import reraise_as
from sfao.lab.run.folder import CONFIG
from sfao.lab.run.record import RECORD, Record, load_record
from sfao.lab.run.telemetry import STEPS
from sfao.lab.safe_io import parse_json, read_file

#: What is counted of every layer.
DECISIONS = ("accept", "project", "discard", "zero")


@dataclass(frozen=True)
class LoadedRun:
    """A run that ended, well or not; `steps` are the lines of steps.jsonl."""

    folder: Path
    #: Unique in a report.
    name: str
    record: Record
    steps: list[dict[str, Any]]
    #: A sentence on what is damaged or missing; empty when nothing is.
    notice: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The options of its method."""
        found = self.record.config.get("options")
        return found if isinstance(found, dict) else {}


def load_runs(folders: Sequence[Path]) -> list[LoadedRun]:
    """Return the runs that the folders are or hold, at any depth, each once, in reading order.

    A ReportError when a folder is not there or holds no finished run, or when a record is damaged. Damaged telemetry
    costs a run its steps, and it says so.
    """
    found: dict[Path, None] = {}
    for folder in folders:
        ended = [path.resolve() for path in _find_runs(_check_folder(folder)) if (path / RECORD).exists()]
        if not ended:
            raise ReportError(f"`{folder}` must be or hold finished runs (folders with {RECORD}), found none")
        found |= dict.fromkeys(ended)
    root = _root(folders, list(found))
    named = {_name(folder, root): folder for folder in found}
    return sort_runs([_load(named[name], name) for name in sorted(named, key=natural_order)])


def find_unfinished_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the folders in which a run began and has not ended."""
    begun = {path.resolve() for folder in folders for path in _find_runs(_check_folder(folder))}
    return sorted(path for path in begun if not (path / RECORD).exists())


def write_notices(runs: Sequence[LoadedRun], unfinished: Sequence[Path]) -> list[str]:
    """Return the sentences that a reader needs beside the numbers: what is damaged, missing or unfinished."""
    said: dict[str, list[str]] = {}
    for run in runs:
        if run.notice:
            said.setdefault(run.notice, []).append(run.name)
    lines = [f"{_some(names)}: {notice}" for notice, names in said.items()]
    if unfinished:
        count = f"{len(unfinished)} run{'s are' if len(unfinished) > 1 else ' is'}"
        lines.append(f"{count} not finished and left out: {_some([path.name for path in unfinished])}.")
    return lines


def _some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def sort_runs(runs: Sequence[LoadedRun]) -> list[LoadedRun]:
    """Sort runs by what may be compared, then by method: sgd first, joint last, the others as they are listed."""
    groups = group_records(run.record for run in runs)
    place = {id(record): number for number, records in enumerate(groups) for record in records}
    return sorted(runs, key=lambda run: (place[id(run.record)], _rank(run.record.method)))


def _rank(method: str) -> int:
    known = [name for name in METHODS if name != BOUND]
    return known.index(method) if method in known else len(known) + (method == BOUND)


def natural_order(text: str) -> list[tuple[int, str]]:
    """Return a sort key in which sgd-2 comes before sgd-10."""
    return [(int(digits or 0), rest) for digits, rest in re.findall(r"(\d*)(\D*)", text)]


# -- Finding -----------------------------------------------------------------------------------------------


def _check_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise ReportError(f"`{folder}` must be a folder of runs, {'it is a file' if folder.exists() else 'none there'}")
    return folder


def _find_runs(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs, ended or begun; nothing is looked for below an ended one, or in hidden folders."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        if RECORD in files or CONFIG in files:
            yield Path(place)
        folders[:] = [] if RECORD in files else [name for name in folders if not name.startswith(".")]


def _raise(error: OSError) -> None:
    """Raise the error of a folder that cannot be listed, which would be left out otherwise."""
    raise error


def _root(asked: Sequence[Path], found: Sequence[Path]) -> Path:
    """Return the folder that all names are relative to: the one given, or the parent that several share."""
    common = Path(os.path.commonpath([folder.resolve() for folder in asked]))
    return common.parent if common in found else common


def _name(folder: Path, root: Path) -> str:
    return folder.relative_to(root).as_posix()


# -- Reading -----------------------------------------------------------------------------------------------


def _load(folder: Path, name: str) -> LoadedRun:
    record = _load_record(folder)
    steps, notice = _load_steps(folder / STEPS, record.steps_sha256)
    return LoadedRun(folder, name, record, steps, notice)


def _load_record(folder: Path) -> Record:
    with reraise_as(ReportError):
        return load_record(folder)


def _load_steps(path: Path, digest: str) -> tuple[list[dict[str, Any]], str]:
    """Return the lines, and a notice of damage: none of a file with another digest than the record says.

    Records of older versions say none: then the lines up to the first that cannot be read.
    """
    try:
        data = read_file(path)
    except FileNotFoundError:
        return [], f"it has no {STEPS}"
    if digest and sha256(data).hexdigest() != digest:
        return [], f"{STEPS} is damaged, its digest is not the one in {RECORD}; figures leave it out"
    steps: list[dict[str, Any]] = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            steps.append(check_step(parse_json(line, finite=False)))
        except (ValueError, TypeError, KeyError, AttributeError):
            return steps, f"line {number} of {STEPS} is damaged; figures use what comes before it"
    return steps, ""


def check_step(step: dict[str, Any]) -> dict[str, Any]:
    """Return a step whose decisions and looks can be drawn; raise on any other."""
    for look in step["gate"].values():
        # Layers behind a gate have `kept`, and a cosine once they store directions; layers of a bound have neither.
        if not (abs(look.get("cosine", 0)) <= 1 and all(map(isfinite, look.values()))):
            raise ValueError
    counts = [layer[name] for layer in step["decisions"].values() for name in DECISIONS]
    if not all(isinstance(number, int) for number in (step["step"], step["task"], *counts)):
        raise TypeError
    return step
