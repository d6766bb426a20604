"""Start-up and run time of two checkouts, in turns: medians, and the ratio of the second to the first.

git worktree add /tmp/before COMMIT
python benchmarks/start_up.py /tmp/before . --rounds 11

CPU seconds are those of the process and its children: on a busy machine they tell more than the clock does.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

COMMAND = "from sfao.lab.cli.main import main; main()"
RUN = ["run", "split-mnist-5k", "--threads", "1", "--quiet", "--set", "epochs=1", "--out", "run"]
CASES: dict[str, list[str]] = {
    "import sfao": ["-c", "import sfao"],
    "import sfao.SFAO": ["-c", "import sfao; sfao.SFAO"],
    "sfao --help": ["-c", COMMAND, "--help"],
    "sfao list": ["-c", COMMAND, "list"],
    "sfao run (sgd)": ["-c", COMMAND, *RUN, "--method", "sgd"],
    "sfao run (sfao)": ["-c", COMMAND, *RUN, "--method", "sfao"],
}


def measure(checkout: Path, arguments: list[str]) -> tuple[float, float]:
    """Run Python once with the sources of a checkout; return the seconds by the clock, and of the CPU."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
        seconds, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"start_up: {' '.join(arguments)} failed in {checkout}: {done.stderr.strip()[-500:]}")
    return seconds, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=11, help="measured, after one that is not")
    parser.add_argument("--cases", help=f"with commas between, of: {', '.join(CASES)}")
    given = parser.parse_args()
    checkouts = [given.before.resolve(), given.after.resolve()]
    for checkout in checkouts:
        if not (checkout / "src" / "sfao").is_dir():
            parser.error(f"`before` and `after` must be checkouts of this project, got {checkout}")
    chosen = [name for name in CASES if given.cases is None or name in given.cases.split(", ")]
    print(f"{'':18} {'before':>15} {'after':>15} {'ratio':>15}   seconds by the clock, of the CPU")
    for name in chosen:
        taken: list[list[tuple[float, float]]] = [[], []]
        for number in range(given.rounds + 1):
            turn = (0, 1) if number % 2 else (1, 0)
            for which in turn:
                seconds = measure(checkouts[which], CASES[name])
                if number:
                    taken[which].append(seconds)
        clock, cpu = ([median(each[kind] for each in own) for own in taken] for kind in (0, 1))
        cells = [f"{clock[which]:7.3f} {cpu[which]:7.3f}" for which in (0, 1)]
        print(f"{name:18} {cells[0]} {cells[1]} {clock[1] / clock[0]:7.3f} {cpu[1] / cpu[0]:7.3f}", flush=True)


if __name__ == "__main__":
    main()
