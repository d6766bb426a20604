"""Many runs on a Ray of two nodes, over the ideal: the time of all runs one by one, divided by the cores.

    python benchmarks/ray_runs.py [--runs 40] [--epochs 10] [--json FILE]

Two nodes with one CPU each, on this machine (pip install 'sfao[lab,ray]'); the runs are of SGD on split-mnist-5k.
All the while another process does single runs, one after the other: the ideal is of their times, so that it is of the
same load. The times of the launchers are of the whole call, with the start of their processes, on a cluster that is
there already.
"""

import argparse
import json
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

# Before Ray is imported: runs with the priority of other processes, and a secret of this cluster alone.
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_worker_niceness="0",
    RAY_AUTH_MODE="token",
    RAY_AUTH_TOKEN=secrets.token_hex(32),
)
from ray.cluster_utils import Cluster

from sfao.lab.run.compare import run_here
from sfao.lab.run.jobs import Runner, plan
from sfao.lab.run.pool import run_all
from sfao.lab.run.ray import RayRunner
from sfao.lab.run.record import Record, versions

NODES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="how many (default 40)")
    parser.add_argument("--epochs", type=int, default=10, help="of each run (default 10)")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    asked = parser.parse_args()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    digests, rows = [], []
    launchers: dict[str, Runner] = {"ray": RayRunner(cluster.address), "local": run_all}
    for name, run in launchers.items():
        with single_runs(asked.epochs) as singles:
            seconds, records = time_runs(asked.runs, asked.epochs, run, None if name == "ray" else NODES)
        ideal = asked.runs * statistics.mean(singles) / NODES
        busy = sum(record.seconds for record in records) / (NODES * seconds)
        print(
            f"{name:6}{asked.runs} runs in {seconds:.1f} s, {seconds / ideal:.2f}x the ideal of {ideal:.1f} s "
            f"({len(singles)} single runs, {statistics.mean(singles):.1f} s each); "
            f"{busy:.0%} of the time of its cores in runs; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        rows.append(
            {
                "launcher": name,
                "runs": asked.runs,
                "seconds": seconds,
                "single_seconds": statistics.mean(singles),
                "singles": len(singles),
                "times_ideal": seconds / ideal,
                "busy": busy,
                "load": os.getloadavg()[0],
            }
        )
        digests.append([record.weights_sha256 for record in records])
    cluster.shutdown()
    equal = [ray == local for ray, local in zip(*digests, strict=True)]
    print(f"weights equal to the bit: {sum(equal)} of {len(equal)}")
    if asked.json:
        kept = {"machine": versions("cpu"), "equal_weights": sum(equal), "rows": rows}
        asked.json.write_text(json.dumps(kept, indent=1) + "\n")


@contextmanager
def single_runs(epochs: int) -> Iterator[list[float]]:
    """Let a process do single runs as long as the context is open; the list has their seconds after it."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=do_single_runs, args=(theirs, epochs))
    process.start()
    ours.recv()  # it is up
    found: list[float] = []
    yield found
    ours.send(None)
    found += ours.recv()
    process.join()


def do_single_runs(pipe: Connection, epochs: int) -> None:
    time_runs(1, 1, run_here, None)
    pipe.send(None)
    seconds: list[float] = []
    while not seconds or not pipe.poll():
        seconds += [record.seconds for record in time_runs(1, epochs, run_here, None)[1]]
    pipe.send(seconds)


def time_runs(runs: int, epochs: int, run: Runner, workers: int | None) -> tuple[float, list[Record]]:
    """Return the seconds that a launcher takes for so many runs, and their records."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = plan("split-mnist-5k", ["sgd"], range(runs), Path(folder) / "runs", settings={"epochs": epochs})
        began = time.monotonic()
        endings = run(jobs, workers=workers, threads=1, watch=lambda job, event: None)
        return time.monotonic() - began, [ending for ending in endings if isinstance(ending, Record)]


if __name__ == "__main__":
    main()
