"""Loaded runs, grouped as their comparison is: what must not be averaged is never in one figure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sfao.lab.report.comparison import Group, compare_records, group_records, name_rows, split_into_rows
from sfao.lab.report.errors import ReportError
from sfao.lab.report.runs import LoadedRun


@dataclass(frozen=True)
class RunGroup:
    """A group of the comparison, and the runs that it is of."""

    group: Group
    runs: list[LoadedRun]
    #: {row: the runs that its numbers are of}, in the order of the rows; rows without any are left out.
    done: dict[str, list[LoadedRun]]
    #: Ends the file names of what belongs to this group; empty when it is the only one.
    slug: str
    #: {name of a run: its row}, of all runs, also those that count in no row because another has their seed.
    row_of: dict[str, str]

    def file_name(self, start: str) -> str:
        return f"{start}-{self.slug}" if self.slug else start


def group_runs(runs: Sequence[LoadedRun]) -> list[RunGroup]:
    """Return the groups in the order of `compare_records(records).groups`."""
    of_record = {id(run.record): run for run in runs}
    records = [run.record for run in runs]
    found = []
    for group, members in zip(compare_records(records).groups, group_records(records), strict=True):
        _check_tasks([of_record[id(record)] for record in members if record.status == "done"])
        rows = split_into_rows(members)
        done = {
            row.method: [of_record[id(record)] for record in rows[row.method] if record.status == "done"]
            for row in group.rows
            if row.done
        }
        row_of = {of_record[id(record)].name: row for row, own in name_rows(members).items() for record in own}
        found.append((group, [of_record[id(record)] for record in members], done, row_of))
    slugs = _slugs([group.title for group, *_ in found])
    return [
        RunGroup(group, members, done, slug, row_of)
        for (group, members, done, row_of), slug in zip(found, slugs, strict=True)
    ]


def _check_tasks(runs: Sequence[LoadedRun]) -> None:
    """Check that the runs have as many tasks: runs of one benchmark and setting do, unless a record was edited."""
    for run in runs[1:]:
        counts = [len(each.record.accuracy_matrix) for each in (runs[0], run)]
        if counts[0] != counts[1]:
            raise ReportError(
                f"runs of {run.record.benchmark} must have as many tasks, "
                f"but {runs[0].name} has {counts[0]} and {run.name} has {counts[1]}"
            )


def _slugs(titles: list[str]) -> list[str]:
    """Return the start of each title as a file name, numbered where that alone does not tell them apart."""
    if len(titles) < 2:
        return [""] * len(titles)
    starts = [re.sub(r"[^a-z0-9]+", "-", " ".join(title.split(" ")[:2]).lower()).strip("-")[:60] for title in titles]
    return [
        f"{start}-{starts[:number].count(start) + 1}" if starts.count(start) > 1 else start
        for number, start in enumerate(starts)
    ]
