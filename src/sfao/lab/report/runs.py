"""Finished runs, read back from their folders and grouped as their comparison is."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

from sfao.lab.methods import METHODS
from sfao.lab.report.comparison import BOUND, Group, compare_records, group_records, name_rows, split_into_rows
from sfao.lab.run.errors import ReportError, reraise_as
from sfao.lab.run.folder import CONFIG
from sfao.lab.run.record import RECORD, Record, load_record
from sfao.lab.run.run_log import STEPS
from sfao.lab.safe_io import parse_json, read_file

#: The decisions that steps.jsonl counts for every layer.
DECISIONS = ("accept", "project", "discard", "zero")


@dataclass(frozen=True)
class LoadedRun:
    """A run that ended, well or not; `steps` are the lines of steps.jsonl."""

    folder: Path
    #: Unique in a report.
    name: str
    record: Record
    steps: list[dict[str, Any]]
    #: A sentence on what is damaged or missing; else empty.
    notice: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of its method."""
        found = self.record.config.get("options")
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class RunGroup:
    """A group of the comparison, and its runs."""

    group: Group
    runs: list[LoadedRun]
    #: {row: the runs behind its numbers}, in the order of the rows; rows without any are left out.
    done: dict[str, list[LoadedRun]]
    #: {name of a run: its row}, of all runs, also those that don't count because another has their seed.
    row_of: dict[str, str]
    #: The end of its file names; empty when it is the only group.
    slug: str

    def file_name(self, start: str) -> str:
        return f"{start}-{self.slug}" if self.slug else start


# -- Loading ---------------------------------------------------------------------------------------------------------


def load_runs(folders: Sequence[Path]) -> list[LoadedRun]:
    """Return the runs that the folders are or hold, at any depth, each once, in reading order.

    Raise a ReportError when a folder is missing or holds no finished run, or when a record is damaged. A run with
    damaged telemetry loses its steps and has a notice.
    """
    found: dict[Path, None] = {}
    for folder in folders:
        ended = [path.resolve() for path in _find_runs(folder) if (path / RECORD).exists()]
        if not ended:
            raise ReportError(f"`{folder}` must be or hold finished runs (folders with {RECORD}), found none")
        found |= dict.fromkeys(ended)
    common = Path(os.path.commonpath([folder.resolve() for folder in folders]))
    root = common.parent if common in found else common
    named = {folder.relative_to(root).as_posix(): folder for folder in found}
    return _sort_runs([_load(named[name], name) for name in sorted(named, key=_natural_order)])


def find_unfinished_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the folders in which a run began and has not ended."""
    begun = {path.resolve() for folder in folders for path in _find_runs(folder)}
    return sorted(path for path in begun if not (path / RECORD).exists())


def write_notices(runs: Sequence[LoadedRun], unfinished: Sequence[Path]) -> list[str]:
    """Return the sentences that a reader needs beside the numbers: what is damaged, missing or unfinished."""
    names: dict[str, list[str]] = {}
    for run in runs:
        if run.notice:
            names.setdefault(run.notice, []).append(run.name)
    lines = [f"{_list_names(own)}: {notice}" for notice, own in names.items()]
    if unfinished:
        count = f"{len(unfinished)} run{'s are' if len(unfinished) > 1 else ' is'}"
        lines.append(f"{count} not finished and left out: {_list_names([path.name for path in unfinished])}.")
    return lines


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _find_runs(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs, ended or begun; skip what is below an ended one, hidden folders and links."""
    if not folder.is_dir():
        raise ReportError(f"`{folder}` must be a folder of runs, {'it is a file' if folder.exists() else 'none there'}")
    for place, folders, files in os.walk(folder, onerror=_raise):
        if RECORD in files or CONFIG in files:
            yield Path(place)
        folders[:] = [] if RECORD in files else [name for name in folders if not name.startswith(".")]


def _raise(error: OSError) -> None:
    """Raise the error of a folder that cannot be listed; `os.walk` would skip it."""
    raise error


def _load(folder: Path, name: str) -> LoadedRun:
    with reraise_as(ReportError):
        record = load_record(folder)
    return LoadedRun(folder, name, record, *_load_steps(folder / STEPS, record.steps_sha256))


def _load_steps(path: Path, digest: str) -> tuple[list[dict[str, Any]], str]:
    """Return the lines and a notice of damage: no lines if the digest differs from the record's.

    Older records have no digest: then the lines up to the first damaged one.
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
    """Return a line of telemetry that can be drawn; raise on any other."""
    for values in step["gate"].values():
        # Layers behind a gate have `kept`, and a cosine once they store directions; layers of a bound have neither.
        if not (abs(values.get("cosine", 0)) <= 1 and all(map(isfinite, values.values()))):
            raise ValueError
    counts = [layer[name] for layer in step["decisions"].values() for name in DECISIONS]
    if not all(isinstance(number, int) for number in (step["step"], step["task"], *counts)):
        raise TypeError
    return step


def _sort_runs(runs: Sequence[LoadedRun]) -> list[LoadedRun]:
    """Sort runs by group, then by method: sgd first, joint last, the others in the order of METHODS."""
    groups = group_records(run.record for run in runs)
    place = {id(record): number for number, records in enumerate(groups) for record in records}
    known = [name for name in METHODS if name != BOUND]

    def rank(method: str) -> int:
        return known.index(method) if method in known else len(known) + (method == BOUND)

    return sorted(runs, key=lambda run: (place[id(run.record)], rank(run.record.method)))


def _natural_order(text: str) -> list[tuple[int, str]]:
    """Return a sort key that puts sgd-2 before sgd-10."""
    return [(int(digits or 0), rest) for digits, rest in re.findall(r"(\d*)(\D*)", text)]


# -- Grouping --------------------------------------------------------------------------------------------------------


def group_runs(runs: Sequence[LoadedRun]) -> list[RunGroup]:
    """Return the groups in the order of `compare_records(records).groups`."""
    run_of = {id(run.record): run for run in runs}
    records = [run.record for run in runs]
    groups = compare_records(records).groups
    slugs = _make_slugs([group.title for group in groups])
    found = []
    for group, members, slug in zip(groups, group_records(records), slugs, strict=True):
        rows = split_into_rows(members)
        done = {
            row.method: [run_of[id(record)] for record in rows[row.method] if record.status == "done"]
            for row in group.rows
            if row.done
        }
        _check_tasks([run for own in done.values() for run in own])
        row_of = {run_of[id(record)].name: row for row, own in name_rows(members).items() for record in own}
        found.append(RunGroup(group, [run_of[id(record)] for record in members], done, row_of, slug))
    return found


def _check_tasks(runs: Sequence[LoadedRun]) -> None:
    """Check that runs of a group have the same number of tasks."""
    for run in runs[1:]:
        counts = [len(each.record.accuracy_matrix) for each in (runs[0], run)]
        if counts[0] != counts[1]:
            raise ReportError(
                f"runs of {run.record.benchmark} must have as many tasks, "
                f"but {runs[0].name} has {counts[0]} and {run.name} has {counts[1]}"
            )


def _make_slugs(titles: Sequence[str]) -> list[str]:
    """Return the start of each title as a file name, numbered where two are equal; empty for one title."""
    if len(titles) < 2:
        return [""] * len(titles)
    starts = [re.sub(r"[^a-z0-9]+", "-", " ".join(title.split(" ")[:2]).lower()).strip("-")[:60] for title in titles]
    return [
        f"{start}-{starts[:number].count(start) + 1}" if starts.count(start) > 1 else start
        for number, start in enumerate(starts)
    ]
