"""Many runs on a Ray of two nodes, over the ideal: the time of all runs one by one, divided by the cores.

    python benchmarks/ray_runs.py [--runs 40] [--epochs 20]

Two nodes with one CPU each, on this machine (pip install 'sfao[lab,ray]'); the runs are of SGD on split-mnist-5k.
Single runs take turns with the whole: a few, the runs on Ray, a few, the runs in local processes, a few. The times
of launchers are of the whole call, processes and all, on a cluster that is there already.
"""

import argparse
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# Before Ray is imported: runs with the priority of other processes, and a secret of this cluster alone.
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_worker_niceness="0",
    RAY_AUTH_MODE="token",
    RAY_AUTH_TOKEN=secrets.token_hex(32),
)
from ray.cluster_utils import Cluster

from sfao.experiment.compare import Runner
from sfao.experiment.in_process import run_here
from sfao.experiment.plan import plan
from sfao.experiment.pool import run_all
from sfao.experiment.record import Record
from sfao.launchers.ray_launcher import RayLauncher

NODES = 2
#: Single runs each time.
SINGLE = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="how many (default 40)")
    parser.add_argument("--epochs", type=int, default=20, help="of each run (default 20)")
    asked = parser.parse_args()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)

    def do(runs: int, run: Runner, workers: int | None = None) -> tuple[float, list[Record]]:
        return time_runs(runs, asked.epochs, run, workers)

    do(1, run_here)
    single = [do(SINGLE, run_here)[1]]
    on_ray, ray_records = do(asked.runs, RayLauncher(cluster.address))
    single.append(do(SINGLE, run_here)[1])
    local, local_records = do(asked.runs, run_all, NODES)
    single.append(do(SINGLE, run_here)[1])
    cluster.shutdown()

    each = statistics.mean(record.seconds for records in single for record in records)
    ideal = asked.runs * each / NODES
    print(f"{asked.runs} runs of {each:.1f} s on {NODES} cores: ideal {ideal:.1f} s")
    for name, seconds, records in (("ray", on_ray, ray_records), ("local", local, local_records)):
        busy = sum(record.seconds for record in records) / (NODES * seconds)
        print(f"{name:6}{seconds:8.1f} s, {seconds / ideal:.2f}x the ideal; {busy:.0%} of its cores' time in runs")
    equal = [a.weights_sha256 == b.weights_sha256 for a, b in zip(ray_records, local_records, strict=True)]
    print(f"weights equal to the bit: {sum(equal)} of {len(equal)}")


def time_runs(
    runs: int, epochs: int, run: Callable[..., list[Record]], workers: int | None
) -> tuple[float, list[Record]]:
    """Return the seconds that a launcher takes for so many runs, and their records."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = plan("split-mnist-5k", ["sgd"], range(runs), Path(folder) / "runs", settings={"epochs": epochs})
        began = time.monotonic()
        records = run(jobs, workers=workers, threads=1, watch=lambda job, event: None)
        return time.monotonic() - began, records


if __name__ == "__main__":
    main()
