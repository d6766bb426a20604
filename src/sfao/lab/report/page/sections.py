"""The contents of the page for each group of comparable runs, before they are HTML."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import yaml
from markupsafe import Markup

from sfao import __version__
from sfao.decision import Decision
from sfao.lab.report.comparison import Group, Row
from sfao.lab.report.comparison_notes import list_runs, write_reading_notes
from sfao.lab.report.groups import RunGroup
from sfao.lab.report.headline import Finding
from sfao.lab.report.page.chosen_seeds import describe_runs
from sfao.lab.report.page.pictures import Picture, write_json
from sfao.lab.report.page.settings import Settings, collect_settings, describe_seeds, describe_settings
from sfao.lab.report.page.tables import make_result_table, make_runs_table
from sfao.lab.report.runs import LoadedRun
from sfao.lab.run.record import Record, describe_rollback
from sfao.lab.tables import Table


@dataclass(frozen=True)
class RunDetails:
    """One run, with all that is known of its making."""

    name: str
    row: str
    seed: int
    summary: str
    troubled: bool
    facts: list[tuple[str, str]]
    #: The settings that not every run of the group shares.
    own: dict[str, str]
    config: str


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    finding: Finding
    #: A sentence where the numbers are not of the whole data set.
    caveat: str
    facts: list[tuple[str, str]]
    results: Table[Row]
    notes: list[str]
    warnings: list[tuple[str, str]]
    #: (runs, how they ended, why) of those that did not end well.
    troubles: list[tuple[str, str, str]]
    pictures: Sequence[Picture]
    runs: Table[LoadedRun]
    settings: Settings
    details: list[RunDetails]
    #: The numbers of single runs, as JSON.
    numbers: Markup

    @property
    def parts(self) -> list[tuple[str, str]]:
        """(anchor, title) of its parts, in the order of the page."""
        found = [("results", "Results")]
        found += [("warnings", "Warnings")] if self.troubles or self.warnings else []
        found += [("figures", "Figures")] if len(self.pictures) > 1 else []
        found += [("runs", "Runs"), ("settings", "Settings"), ("about", "About")]
        return [(f"{self.anchor}-{name}", title) for name, title in found]


@dataclass(frozen=True)
class Opening:
    #: Of the window.
    title: str
    headline: str
    details: list[str]
    version: str
    #: {what readers filter by: its values}, of what has more than one.
    choices: dict[str, list[str]]


def make_opening(runs: Sequence[LoadedRun], sections: Sequence[Section]) -> Opening:
    """Return the finding of the one group, or what the groups are where there are several."""
    benchmarks = join_names(dict.fromkeys(run.record.benchmark for run in runs))
    if len(sections) == 1:
        headline, details = sections[0].finding.headline, sections[0].finding.details
    else:
        headline = benchmarks
        counts = (
            f"{format_count(len(runs), 'run')} of {format_count(len({run.record.method for run in runs}), 'method')}"
        )
        details = [
            f"{counts}, in {len(sections)} groups that differ in benchmark, scenario or data: nothing is averaged or "
            "ranked across groups, and nothing should be."
        ]
    return Opening(benchmarks, headline, details, __version__, _list_choices(sections))


def _list_choices(sections: Sequence[Section]) -> dict[str, list[str]]:
    details = [run for section in sections for run in section.details]
    frames = [panel.attributes for section in sections for picture in section.pictures for panel in picture.panels]
    found = {
        "row": dict.fromkeys(row.method for section in sections for row in section.results.rows),
        "layer": dict.fromkeys(frame["data-layer"] for frame in frames if "data-layer" in frame),
        "seed": dict.fromkeys(str(seed) for seed in sorted({run.seed for run in details})),
    }
    return {name: list(values) for name, values in found.items() if len(values) > 1}


def make_section(group: RunGroup, finding: Finding, anchor: str, pictures: Sequence[Picture]) -> Section:
    settings = describe_settings(group.runs)
    return Section(
        anchor=anchor,
        title=group.group.title,
        finding=finding,
        caveat=group.group.caveat,
        facts=_facts(group),
        results=make_result_table(group.group),
        notes=write_reading_notes(group.group),
        warnings=_warnings(group.group),
        troubles=_list_troubles(group.runs),
        pictures=pictures,
        runs=make_runs_table(group),
        settings=settings,
        details=[_details(run, group.row_of[run.name], settings) for run in group.runs],
        numbers=write_json(describe_runs(group, {panel.row for picture in pictures for panel in picture.panels})),
    )


def _list_troubles(runs: Sequence[LoadedRun]) -> list[tuple[str, str, str]]:
    """Return every way to end badly once, with the runs that ended so."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        if run.record.status != "done":
            found.setdefault((run.record.status, run.record.error), []).append(run.name)
    return [(join_names(names), status, error) for (status, error), names in found.items()]


def _warnings(group: Group) -> list[tuple[str, str]]:
    uneven = [("settings", group.uneven)] if group.uneven else []
    return uneven + [(list_runs(warned), warned.text) for warned in group.warnings]


def _facts(group: RunGroup) -> list[tuple[str, str]]:
    runs, first = group.runs, group.runs[0].record
    found = [
        ("Benchmark", f"{first.benchmark}, {first.scenario} scenario{_tasks(runs)}"),
        ("Data", _data(first)),
        ("Model", join_names(dict.fromkeys(_model(run.record) for run in runs))),
        ("Methods", join_names(dict.fromkeys(run.record.method for run in runs))),
        ("Seeds", describe_seeds({run.record.seed for run in runs})),
        ("Runs", _endings(runs)),
        ("Ended", _period(runs)),
        ("Device", join_names(dict.fromkeys(run.record.versions.get("device", "") for run in runs))),
    ]
    return [(name, value) for name, value in found if value]


def _tasks(runs: Sequence[LoadedRun]) -> str:
    """The number of tasks, from a run that evaluated them."""
    counts = [len(run.record.accuracy_matrix[0]) for run in runs if run.record.accuracy_matrix]
    return f", {format_count(counts[0], 'task')}" if counts else ""


def _data(record: Record) -> str:
    data = record.data
    if not data:
        return "not told by the records"
    kind = "embedded digits" if data.get("embedded") else "complete" if data.get("complete", True) else "a part of it"
    if data.get("published") is False:
        kind += ", not known to be the publisher's files"
    return f"{data['name']} ({kind}): {data['train']:,} images to train, {data['test']:,} to test"


def _model(record: Record) -> str:
    model = dict(record.config.get("model") or {})
    name = str(model.pop("name", ""))
    sizes = ", ".join(f"{size} {value}" for size, value in model.items())
    return f"{name} ({sizes})" if sizes else name


def _endings(runs: Sequence[LoadedRun]) -> str:
    statuses = [run.record.status for run in runs]
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(sorted(statuses)))


def _period(runs: Sequence[LoadedRun]) -> str:
    """The time from the first to the last run that ended; empty when no record has a date."""
    stamps = sorted(datetime.fromisoformat(run.record.finished) for run in runs if run.record.finished)
    if not stamps:
        return ""
    (day, time), (last_day, last_time) = (_minute(stamp).split() for stamp in (stamps[0], stamps[-1]))
    if day != last_day:
        return f"{day} {time} to {last_day} {last_time} UTC"
    return f"{day} {time} UTC" if time == last_time else f"{day} {time} to {last_time} UTC"


def _minute(stamp: datetime) -> str:
    return f"{stamp.astimezone(UTC):%Y-%m-%d %H:%M}"


def _describe_end(record: Record) -> str:
    date = f"{_minute(datetime.fromisoformat(record.finished))} UTC, " if record.finished else ""
    return f"{date}{record.status}" + f": {record.error}" * bool(record.error)


def _details(run: LoadedRun, row: str, settings: Settings) -> RunDetails:
    record = run.record
    facts = [
        ("Ended", _describe_end(record)),
        ("Data", _data(record)),
        ("Tasks", ", ".join(record.task_names)),
        ("Decisions", _decisions(record)),
        *(("Rollback", describe_rollback(rollback).removeprefix("rollback ")) for rollback in record.rollbacks),
        ("Weights", f"SHA-256 {record.weights_sha256}" if record.weights_sha256 else ""),
        ("Versions", ", ".join(f"{name} {value}" for name, value in record.versions.items())),
    ]
    accuracy = record.metrics.get("average_accuracy")
    return RunDetails(
        name=run.name,
        row=row,
        seed=record.seed,
        summary=record.status if accuracy is None else f"accuracy {accuracy:.4f}",
        troubled=record.status != "done",
        facts=[(name, value) for name, value in facts if value],
        own={name: value for name, value in collect_settings(run).items() if name in settings.differing},
        config=yaml.safe_dump(record.config, sort_keys=False, allow_unicode=True),
    )


def _decisions(record: Record) -> str:
    totals = {kind.value: sum(layer.get(kind.value, 0) for layer in record.decisions.values()) for kind in Decision}
    decided = sum(totals.values())
    return ", ".join(f"{name} {count / decided:.1%}" for name, count in totals.items()) if decided else ""


def join_names(names: Iterable[str]) -> str:
    """Return `a, b and c`."""
    *most, last = list(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
