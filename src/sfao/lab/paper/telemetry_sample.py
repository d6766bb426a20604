"""A sample of the steps of a run, kept with the records: what figures need that records do not hold.

A sample is a file of two lines: the record of the run, and some of the lines of its steps.jsonl, under a digest.
"""

import json
from pathlib import Path
from typing import Any

from sfao.lab.paper.protocol import PRESETS, Series, figure_series
from sfao.lab.report.runs import LoadedRun, check_step, load_runs
from sfao.lab.report.style import pick_evenly
from sfao.lab.run.errors import FolderError
from sfao.lab.run.files import write_text
from sfao.lab.run.folder import finished_record
from sfao.lab.run.record import read_record
from sfao.lab.run.seal import seal, unseal
from sfao.lab.safe_io import MAX_LINE, iter_lines, parse_json

#: The folder of the samples, beside the records of a preset.
SAMPLES = "steps"
#: Lines of steps.jsonl that a sample has at most, and characters that it has about at most.
MOST_LINES, MOST_TEXT = 200, 100_000


def collect_samples(runs: Path, records: Path) -> list[Path]:
    """Write the sample of one run for figure 2 of each preset, where one left steps; return the files."""
    written = []
    for preset in PRESETS:
        for series in figure_series("figure2", preset):
            run = _find_run(runs, series)
            if run is not None:
                file = records / preset / SAMPLES / f"{series.place()}-{series.name}.jsonl"
                file.parent.mkdir(parents=True, exist_ok=True)
                write_text(file, write_sample(run))
                written.append(file)
    return written


def _find_run(runs: Path, series: Series) -> LoadedRun | None:
    """Return the run with the smallest seed that ended well and left steps; None without any."""
    folders = (runs / series.preset / series.place()).glob(f"{series.name}-[0-9]*")
    done = [folder for folder in folders if (record := finished_record(folder)) and record.status == "done"]
    found = [run for run in load_runs(done) if run.steps] if done else []
    return min(found, key=lambda run: run.record.seed, default=None)


def write_sample(run: LoadedRun) -> str:
    """Return the text of a sample: the record of a run, and lines of its steps, evenly spaced, within the limits."""
    most = MOST_LINES
    while True:
        kept = pick_evenly(run.steps, most)
        text = json.dumps(seal({"of": len(run.steps), "steps": kept}))
        if len(text) <= MOST_TEXT or most <= 2:
            return f"{json.dumps(run.record.as_json())}\n{text}\n"
        most = max(2, most // 2)


def read_samples(folder: Path) -> list[LoadedRun]:
    """Return the runs that the samples of a preset are of, with the steps that were kept; a FolderError on damage."""
    return [_read_sample(file) for file in sorted((folder / SAMPLES).glob("*.jsonl"))]


def _read_sample(file: Path) -> LoadedRun:
    try:
        first, second = iter_lines(file, MAX_LINE)
        record = read_record(first, f"{file}:1")
        kept: dict[str, Any] = unseal(parse_json(second, finite=False), new=("steps",))
        steps = [check_step(step) for step in kept["steps"]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FolderError(f"{file} must be a sample of the steps of a run, but it is damaged: {error}") from error
    return LoadedRun(file.parent, f"{record.method}-{record.seed}", record, steps)
