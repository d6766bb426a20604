"""The throughput of stacked runs, against single runs one after the other, and the accuracies beside each other.

    python benchmarks/stacked_runs.py --device cuda [--runs 50] [--singles 3] [--methods sgd,sfao] [--json FILE]

Split MNIST under the protocol of the paper's released code (MLP-256, batch 32, learning rate 1e-3, two epochs), or
`--benchmark` and `--set`. First the seeds below `--singles`, each on its own, then those below `--runs` in one stack,
all in this process, after short runs that load what the first ones of a process load. Seconds are from reading the data
to the last record. `apart` is the largest difference of a stacked run's accuracy to that of the single one with its
seed, to be read beside `sd`, the deviation over the seeds of the stack.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from sfao.experiment.config import parse_setting
from sfao.experiment.in_process import run_here
from sfao.experiment.plan import plan
from sfao.experiment.record import Record
from sfao.experiment.stacked.runner import run_stacked
from sfao.experiment.worker import Failure, Job


def time_runs(jobs: list[Job], stacked: bool, how: dict[str, Any]) -> tuple[float, list[Record]]:
    """Return the seconds that the jobs take, and their records."""
    began = time.perf_counter()
    if stacked:
        ended = run_stacked(jobs, say=print, **how)
    else:
        ended = list(run_here(jobs, watch=lambda job, event: None, workers=None, **how))
    seconds = time.perf_counter() - began
    broken = [ending for ending in ended if isinstance(ending, Failure) or ending.status != "done"]
    if broken:
        raise SystemExit(f"{len(broken)} of {len(jobs)} runs did not end well: {broken[0].error}")
    return seconds, [ending for ending in ended if isinstance(ending, Record)]


def measure(method: str, arguments: argparse.Namespace, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    how = {"threads": arguments.threads, "data_root": arguments.data_root}

    def make_jobs(place: str, seeds: int, **more: Any) -> list[Job]:
        return plan(arguments.benchmark, [method], range(seeds), folder / method / place, settings={**settings, **more})

    for stacked in (False, True):
        time_runs(make_jobs(f"warm-up-{stacked}", 2, epochs=1, fraction=0.02), stacked, how)
    single_seconds, singles = time_runs(make_jobs("single", arguments.singles), False, how)
    seconds, together = time_runs(make_jobs("stacked", arguments.runs), True, how)
    accuracies = [record.metrics["average_accuracy"] for record in together]
    alone = [record.metrics["average_accuracy"] for record in singles]
    each = single_seconds / arguments.singles
    return {
        "method": method,
        "runs": arguments.runs,
        "stack_seconds": seconds,
        "single_seconds": each,
        "throughput": each * arguments.runs / seconds,
        "accuracy": fmean(accuracies),
        "sd": stdev(accuracies),
        "apart": max(abs(a - b) for a, b in zip(alone, accuracies, strict=False)),
        "gpu": singles[0].versions.get("gpu", "none"),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="split-mnist")
    parser.add_argument("--methods", default="sgd,sfao")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--singles", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], dest="settings", help="a setting, such as epochs=1")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    settings = {"device": arguments.device, **dict(parse_setting(text) for text in arguments.settings)}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for method in arguments.methods.split(","):
            found.append(measure(method, arguments, settings, Path(folder)))
            print(
                "{method:5} {runs} runs stacked {stack_seconds:.1f} s, a single one {single_seconds:.1f} s: throughput "
                "{throughput:.1f}x; accuracy {accuracy:.4f}, sd {sd:.4f}, apart {apart:.4f}".format(**found[-1]),
                flush=True,
            )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
