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
from sfao.lab.report.comparison import BOUND, Group, compare_records, group_records
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
    #: What is damaged or missing; else empty.
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
    #: {row: its runs, one per seed}, in the order of the rows.
    runs: dict[str, list[LoadedRun]]
    #: The end of its file names; empty when it is the only group.
    slug: str

    @property
    def done(self) -> dict[str, list[LoadedRun]]:
        """Return {row: the runs behind its numbers}; rows without any are left out."""
        done = {row: [run for run in own if run.record.status == "done"] for row, own in self.runs.items()}
        return {row: own for row, own in done.items() if own}

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


def write_notices(runs: Sequence[LoadedRun], groups: Sequence[RunGroup], unfinished: Sequence[Path]) -> list[str]:
    """Return the sentences that a reader needs beside the numbers: what is damaged, repeated or unfinished."""
    used = {run.name for group in groups for own in group.runs.values() for run in own}
    names: dict[str, list[str]] = {}
    for run in runs:
        if run.notice:
            names.setdefault(run.notice, []).append(run.name)
        if run.name not in used:
            names.setdefault("left out, another run has the same settings and seed", []).append(run.name)
    if unfinished:
        names["not finished and left out"] = [path.name for path in unfinished]
    return [f"{_list_names(own)}: {notice}." for notice, own in names.items()]


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
    try:
        data = read_file(folder / STEPS)
        if sha256(data).hexdigest() != record.steps_sha256:
            raise ValueError("another digest than in the record")
        steps = [check_step(parse_json(line, finite=False)) for line in data.splitlines()]
        return LoadedRun(folder, name, record, steps)
    except FileNotFoundError:
        return LoadedRun(folder, name, record, [], f"it has no {STEPS}")
    except (ValueError, TypeError, KeyError, AttributeError):
        return LoadedRun(folder, name, record, [], f"{STEPS} is damaged; figures leave it out")


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
    """Return the groups of the comparison of these runs, in its order."""
    run_of = {id(run.record): run for run in runs}
    groups = compare_records([run.record for run in runs]).groups
    slugs = _make_slugs([group.title for group in groups])
    found = [
        RunGroup(group, {row.method: [run_of[id(record)] for record in row.records] for row in group.rows}, slug)
        for group, slug in zip(groups, slugs, strict=True)
    ]
    for group in found:
        done = [run for own in group.done.values() for run in own]
        for run in done[1:]:
            counts = [len(each.record.accuracy_matrix) for each in (done[0], run)]
            if counts[0] != counts[1]:
                raise ReportError(
                    f"runs of {run.record.benchmark} must have as many tasks, "
                    f"but {done[0].name} has {counts[0]} and {run.name} has {counts[1]}"
                )
    return found


def _make_slugs(titles: Sequence[str]) -> list[str]:
    """Return the start of each title as a file name, numbered where two are equal; empty for one title."""
    if len(titles) < 2:
        return [""] * len(titles)
    starts = [re.sub(r"[^a-z0-9]+", "-", " ".join(title.split(" ")[:2]).lower()).strip("-")[:60] for title in titles]
    return [
        f"{start}-{starts[:number].count(start) + 1}" if starts.count(start) > 1 else start
        for number, start in enumerate(starts)
    ]
