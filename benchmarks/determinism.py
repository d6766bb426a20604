"""Same seed, same bits? Runs repeated in other circumstances, and how many end in the same weights.

python benchmarks/determinism.py                                        on the CPU, the embedded digits
python benchmarks/determinism.py --device cuda --benchmarks split-mnist-5k:mlp,split-cifar10:cnn
python benchmarks/determinism.py --out docs/records/determinism.json    keep what docs/reliability.md shows
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

METHODS = "sgd,ewc,gpm,sfao,drift-bound"


@dataclass(frozen=True)
class Case:
    """One circumstance: what differs from the case that it is compared with, in settings and environment."""

    what: str
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    threads: int = 1
    #: What this is to equal.
    base: str = "first"


FIRST = Case("first")
ON_CPU = (
    FIRST,
    Case("another process"),
    Case("another PYTHONHASHSEED", environment={"PYTHONHASHSEED": "7"}),
    Case("OMP_NUM_THREADS=2, one thread asked for", environment={"OMP_NUM_THREADS": "2"}),
    Case("`--deterministic`, beside without", {"deterministic": True}),
    Case("two threads", threads=2),
    Case("two threads, another process", threads=2, base="two threads"),
    Case("kernels of another instruction set", environment={"ATEN_CPU_CAPABILITY": "default"}),
)
ON_GPU = (
    FIRST,
    Case("another process"),
    Case("`--deterministic`, beside without", {"deterministic": True}),
    Case("`--deterministic`, another process", {"deterministic": True}, {}, base="`--deterministic`, beside without"),
)


def do_runs(wanted: dict[str, Any]) -> None:
    """Run everything that is wanted in this process, and print {name: {weights, accuracy} or {error}} as JSON."""
    import torch

    from sfao.lab.run.config import configure
    from sfao.lab.run.loop import execute

    torch.set_num_threads(wanted["threads"])
    found: dict[str, Any] = {}
    for method, (benchmark, model) in product(wanted["methods"], wanted["benchmarks"]):
        settings = {"model.name": model, **wanted["settings"]}
        with tempfile.TemporaryDirectory() as folder:
            try:
                record = execute(configure(benchmark, method, settings=settings), Path(folder) / "run")
            except (RuntimeError, ValueError) as error:
                found[f"{method}, {model}"] = {"error": f"{type(error).__name__}: {error}"}
                continue
        found[f"{method}, {model}"] = {"weights": record.weights_sha256, "accuracy": record.accuracy_matrix}
    print(json.dumps(found))


def start(case: Case, common: dict[str, Any]) -> dict[str, Any]:
    """Do the runs of a case in a process of its own."""
    wanted = {**common, "settings": {**common["settings"], **case.settings}, "threads": case.threads}
    command = [sys.executable, __file__, "--worker", json.dumps(wanted)]
    environment = {**os.environ, **case.environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"determinism: {case.what} failed: {done.stderr[-1000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(runs: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return how many runs end in the same weights, and the largest difference of an accuracy."""
    both = [name for name in runs if "weights" in runs[name] and "weights" in base[name]]
    differences = [
        abs(one - other)
        for name in both
        for row, reference in zip(runs[name]["accuracy"], base[name]["accuracy"], strict=True)
        for one, other in zip(row, reference, strict=True)
    ]
    return {
        "runs": len(both),
        "same": sum(runs[name]["weights"] == base[name]["weights"] for name in both),
        "accuracy": max(differences, default=0.0),
        "differing": [name for name in both if runs[name]["weights"] != base[name]["weights"]],
        "errors": {name: run["error"] for name, run in runs.items() if "error" in run},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--benchmarks", default="split-mnist-5k:mlp,split-mnist-5k:cnn", help="BENCHMARK:MODEL,...")
    parser.add_argument("--fraction", type=float, default=0.05)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.worker:
        do_runs(json.loads(given.worker))
        return
    common = {
        "methods": given.methods.split(","),
        "benchmarks": [pair.split(":") for pair in given.benchmarks.split(",")],
        "settings": {"device": given.device, "fraction": given.fraction, "tasks": given.tasks, "epochs": 1},
    }
    done: dict[str, dict[str, Any]] = {}
    rows = []
    for case in ON_CPU if given.device == "cpu" else ON_GPU:
        done[case.what] = start(case, common)
        if case is not FIRST:
            told = compare(done[case.what], done[case.base])
            rows.append({"what": case.what, "base": case.base, **told})
            print(f"{case.what}: {told['same']} of {told['runs']} the same, accuracy within {told['accuracy']:.3f}")
            for name, error in told["errors"].items():
                print(f"  {name}: {error}")
            sys.stdout.flush()
    if given.out:
        import torch

        name = torch.cuda.get_device_name(given.device) if given.device.startswith("cuda") else given.device
        kept = json.loads(given.out.read_text()) if given.out.exists() else {}
        kept[given.device] = {"device": name, "torch": torch.__version__, **common, "cases": rows}
        given.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
