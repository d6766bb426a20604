"""What guards gain and cost, from kept runs: the accuracy with a guard less that without, seed by seed.

    python benchmarks/guard_gain.py [FILE]

FILE holds the runs, one a line (docs/records/guard.jsonl; docs/laboratory.md has the commands that made them). For
every method, learning rate and guard: the mean difference with p of a paired t-test over seeds, rollbacks in a run, and
the steps that were undone, in per cent of those that count.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from scipy.stats import ttest_rel

from sfao.experiment.record import Record
from sfao.reproduction.archive import read_lines

FILE = Path(__file__).parents[1] / "docs" / "records" / "guard.jsonl"
NONE = "none"


def group_runs(records: list[Record]) -> dict[tuple[str, float], dict[str, dict[int, Record]]]:
    """Return {(method, learning rate): {kind of guard: {seed: record}}}."""
    groups: dict[tuple[str, float], dict[str, dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        guard = record.config["guard"]
        kind = NONE if guard is None else guard["kind"]
        groups[record.method, record.config["lr"]][kind][record.seed] = record
    return groups


def describe(guarded: dict[int, Record], plain: dict[int, Record]) -> str:
    """Return the gain with its p, rollbacks and steps."""
    pairs = [(guarded[seed].metrics, plain[seed].metrics) for seed in guarded]
    ours, theirs = ([each["average_accuracy"] for each in side] for side in zip(*pairs, strict=True))
    rollbacks = fmean(len(record.rollbacks) for record in guarded.values())
    if ours == theirs:
        return f"the same, {rollbacks:.1f} rollbacks"
    undone = fmean(
        sum(back["from"] - back["to"] for back in record.rollbacks) / record.steps for record in guarded.values()
    )
    gain, p = fmean(ours) - fmean(theirs), ttest_rel(ours, theirs).pvalue
    return f"{gain:+.3f}, p = {p:.3f}, {rollbacks:.1f} rollbacks, {undone:.0%} more steps"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=FILE, metavar="FILE", help="the runs")
    for (method, rate), kinds in group_runs(read_lines(parser.parse_args().file)).items():
        for kind in kinds:
            if kind != NONE:
                print(f"{method}, lr {rate:g}, {kind}: {describe(kinds[kind], kinds[NONE])}")


if __name__ == "__main__":
    main()
