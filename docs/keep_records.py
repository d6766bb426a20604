"""Put new results into docs/records, from where pages take their numbers.

python docs/keep_records.py RUNS docs/records/NAME.jsonl      finished runs below the folder RUNS replace that file
python docs/keep_records.py runs/reproduce docs/records       add the finished runs of `sfao reproduce`
python docs/keep_records.py runs/tally.jsonl docs/records/reliability.json    counts of `make soak` replace that file

Nothing that a record names is imported. `make pages` then writes the pages. On other pages, a marker above a table or a
paragraph names the file of its numbers, and the tests compare them (tests/docs/number_blocks.py):

    <!-- from docs/records/NAME.jsonl: compare -->
    <!-- from docs/records/NAME.jsonl: 100 * metrics.average_accuracy ± by method -->
"""

import argparse
import json
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sfao.lab.paper.archive import collect, read_runs, write_lines
from sfao.lab.paper.series import find_series
from sfao.lab.report.runs import ReportError, load_runs
from sfao.lab.report.style import pick_evenly
from sfao.lab.run.errors import FolderError
from sfao.lab.run.folder import finished_record

#: The most lines of steps.jsonl that are kept for figure 2.
MAX_STEPS = 150


def keep_runs(runs: Path, file: Path) -> list[Path]:
    """Write the finished runs below a folder to a file, one record per line."""
    found = read_runs(runs)
    if not found:
        raise FolderError(f"`RUNS` must be a folder that holds finished runs, got {runs}")
    write_lines(file, found)
    return [file]


def keep_steps(runs: Path, records: Path, preset: str = "released") -> list[Path]:
    """Keep some steps of one finished run for figure 2, if there is one."""
    (series,) = find_series("figure2", preset)
    folders = sorted(series.folder(runs, 0).parent.glob(f"{series.name}-[0-9]*"))
    done = [folder for folder in folders if (record := finished_record(folder)) and record.status == "done"]
    found = [run for run in load_runs(done) if run.steps] if done else []
    if not found:
        return []
    file = records / preset / "steps" / f"{series.benchmark}-{series.name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [found[0].record.as_json(), *pick_evenly(found[0].steps, MAX_STEPS)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return [file]


def keep_counts(tally: Path, file: Path) -> list[Path]:
    """Add up the counts of a tally by what was attacked."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in tally.read_text(encoding="utf-8").splitlines()]
    if not lines:
        raise FolderError(f"`RUNS` must be a tally with at least one attack, got {tally} without any")
    attacks: dict[str, dict[str, Any]] = {}
    for line in lines:
        target = line["target"].partition(",")[0]
        attack = attacks.setdefault(target, {"target": target, "trials": 0, "broke": 0})
        attack["trials"] += line["trials"]
        attack["broke"] += line["broke"]
    counts = {
        "date": datetime.fromtimestamp(tally.stat().st_mtime, UTC).date().isoformat(),
        "sfao": version("sfao"),
        "where": sorted({line["where"] for line in lines}),
        "attacks": [attacks[target] for target in sorted(attacks)],
    }
    file.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    return [file]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUNS", help="a folder of runs, or a tally of attacks")
    parser.add_argument("target", type=Path, metavar="TARGET", help="a file or a folder in docs/records")
    arguments = parser.parse_args()
    runs, target = arguments.runs, arguments.target
    try:
        if target.suffix == ".json":
            written = keep_counts(runs, target)
        elif target.suffix == ".jsonl":
            written = keep_runs(runs, target)
        else:
            written = [*collect(runs, target), *keep_steps(runs, target)]
    except (FolderError, ReportError, ValueError, KeyError, OSError) as error:
        sys.exit(f"keep_records: {error}")
    for file in written:
        print(file)


if __name__ == "__main__":
    main()
