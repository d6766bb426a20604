"""docs/baselines.md from the records beside it: what each method reached on a protocol of its paper.

python docs/make_baselines.py                    write the page
python docs/make_baselines.py --collect runs     take the finished runs of a folder into the records first

The checks below are commands. A run belongs to the check whose settings it has, whatever its folder is called. Run from
the repository's root, where `benchmarks.checks` can be imported.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from sfao.lab.methods import METHODS
from sfao.lab.paper.archive import Archive, read_lines, read_runs, settings_key, write_lines
from sfao.lab.run.config import configure, parse_setting
from sfao.lab.run.record import Record

DOCS = Path(__file__).parent
RECORDS = DOCS / "records" / "baselines.jsonl"
TEMPLATE = DOCS / "baselines.template"
#: Fewer seeds are told beside a number.
USUAL_SEEDS = 3


@dataclass(frozen=True)
class Check:
    """A command, and what a paper says that it comes to; None where no paper has the number."""

    #: The method on its own, as the table says it.
    what: str
    command: str
    paper: str | None


@dataclass(frozen=True)
class Protocol:
    """Checks that differ in the method alone."""

    #: The mark in the template.
    name: str
    settings: str
    checks: tuple[Check, ...]


AXES = "--set options.threshold=[0.95,0.99,0.99]"
REPLAY = "--set options.examples=500 --set options.batch=128"

PROTOCOLS = (
    Protocol(
        "ten permutations",
        "--set tasks=10 --set model.hidden=[100,100] --set batch_size=10 --set lr=0.01 --set epochs=5 "
        "--set validation=0.1",
        (
            Check("`gpm`", f"permuted-mnist --method gpm {AXES}", "93.91 ± 0.16 [1]"),
            Check("`sgp`, the thresholds of `gpm`", f"permuted-mnist --method sgp {AXES}", None),
            Check(
                "`trgp`, told the task",
                f"benchmarks.checks:permuted_told --method trgp --set scenario=task {AXES} --set options.trust=0.2",
                "96.34 ± 0.11 [2]",
            ),
            Check("`sgd`", "permuted-mnist --method sgd", None),
        ),
    ),
    Protocol(
        "twenty permutations",
        "--set tasks=20 --set model.hidden=[100,100] --set batch_size=128 --set epochs=1 --set lr=0.2",
        (
            Check("`derpp`, 500 examples", f"permuted-mnist --method derpp {REPLAY}", "88.21 ± 0.39 [3]"),
            Check("`er`, 500 examples", f"permuted-mnist --method er {REPLAY}", "80.60 ± 0.86 [3]"),
            Check("`sgd`", "permuted-mnist --method sgd", "40.70 ± 2.33 [3]"),
        ),
    ),
    Protocol(
        "five pairs of digits",
        "--set model.hidden=[400,400] --set batch_size=128 --set lr=0.001 --set epochs=21",
        (
            Check("`lwf`, with Adam", "split-mnist --method benchmarks.checks:LwFWithAdam", "71.50 ± 1.63 [4]"),
            Check("Adam alone", "split-mnist --method benchmarks.checks:AdamAlone", "59.21 ± 2.04 [4]"),
        ),
    ),
)


def find_records(archive: Archive, protocol: Protocol, check: Check) -> list[Record]:
    """Return the finished runs of a check, by seed."""
    benchmark, _, method, *rest = shlex.split(f"{check.command} {protocol.settings}")
    settings = dict(parse_setting(text) for text in rest if text != "--set")
    key = settings_key(configure(benchmark, method, settings=settings).model_dump())
    found = [record for record in archive.records if settings_key(record.config) == key and record.status == "done"]
    return sorted(found, key=lambda record: record.seed)


def say_metric(records: Sequence[Record], metric: str) -> str:
    """Return the mean in percent, with the deviation over seeds, or with their number where they are few."""
    values = [100 * record.metrics[metric] for record in records]
    if not values:
        return "not run"
    if len(values) == 1:
        return f"{values[0]:.2f} (one seed)"
    few = f" ({len(values)} seeds)" if len(values) < USUAL_SEEDS else ""
    return f"{fmean(values):.2f} ± {stdev(values):.2f}{few}"


def make_table(archive: Archive, protocol: Protocol) -> str:
    """Return the table of a protocol, and the commands that make it."""
    lines = ["| method | stores data | paper | ours | forgotten |", "|---|---|---:|---:|---:|"]
    commands = [f'    P="{protocol.settings} --threads 1"']
    for check in protocol.checks:
        records = find_records(archive, protocol, check)
        stores = "yes" if METHODS[check.command.split(" --method ")[1].split()[0]].stores_data else "no"
        ours, forgotten = (say_metric(records, metric) for metric in ("average_accuracy", "average_forgetting"))
        lines.append(f"| {check.what} | {stores} | {check.paper or '-'} | {ours} | {forgotten if records else '-'} |")
        commands.append(f"    sfao run {check.command} $P")
    return "\n".join([*lines, "", *commands])


def make_page(archive: Archive) -> str:
    page = TEMPLATE.read_text(encoding="utf-8")
    for protocol in PROTOCOLS:
        page = page.replace(f"<<{protocol.name}>>", make_table(archive, protocol))
    return page


def read_archive(file: Path = RECORDS) -> Archive:
    return Archive(read_lines(file) if file.exists() else [])


def collect(runs: Path, file: Path = RECORDS) -> Archive:
    """Take the finished runs of checks under a folder into the records; others are left where they are."""
    found = Archive(read_runs(runs))
    new = [record for each in PROTOCOLS for check in each.checks for record in find_records(found, each, check)]
    if not new:
        raise ValueError(f"`collect` must be a folder that holds finished runs of a check, got {runs}")
    archive = Archive([*read_archive(file).records, *new])
    write_lines(file, archive.records)
    return archive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path)
    arguments = parser.parse_args()
    try:
        archive = collect(arguments.collect) if arguments.collect else read_archive()
        (DOCS / "baselines.md").write_text(make_page(archive), encoding="utf-8")
    except (ValueError, OSError) as error:
        sys.exit(f"make_baselines: {error}")
    print(DOCS / "baselines.md")


if __name__ == "__main__":
    main()
