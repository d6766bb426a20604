"""The cost of `sfao run --live` to the run that it shows.

    python benchmarks/live_page.py [--rounds 7] [--epochs 2] [--json FILE]

First the CPU time that the page takes from training for each state it sends, one a second, and for the lines that are
there when it is opened late: on made telemetry of 5,000 lines (100,000 steps), for models of several sizes.

Then SFAO on the embedded digits, five tasks, one thread, with an MLP of 2 layers and one of 31: alone, with the page
served and nobody looking, and with somebody looking, a process that reads every state as a browser does. The three take
turns in one process, in another order each round; a number is the median over rounds of the ratio to the run alone.
This needs a machine with nothing else to do; `--rounds 0` leaves it out. All runs must end in the same weights.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import torch

from sfao.lab.live.live_run import LiveRun
from sfao.lab.live.server import serve_run
from sfao.lab.run.config import RunConfig, configure
from sfao.lab.run.loop import Run, execute
from sfao.lab.run.record import versions
from sfao.lab.run.run_log import STEPS

MODELS: dict[str, int | list[int]] = {"2 layers": 256, "31 layers": [32] * 30}
LINES = 5000
CASES = ("alone", "served", "watched")
READER = "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1] + '/events'): pass"


def write_line(number: int, layers: int) -> str:
    """Return a line of telemetry."""
    names = [f"block.{layer}.conv" for layer in range(layers)]
    decisions = {name: {"accept": number, "project": 19 * number, "discard": 0, "zero": 0} for name in names}
    looks = {name: {"kept": round(1 / (1 + number / 1e3), 4), "drift": 0.1} for name in names}
    step = {"step": 20 * number, "task": 0, "epoch": 0, "loss": 1 / number}
    return json.dumps({**step, "decisions": decisions, "gate": looks}) + "\n"


def measure_states(layers: int) -> dict[str, float]:
    """Print and return what states cost: of each the line that is new since the last."""
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / STEPS, "w") as file:
        file.writelines(write_line(number, layers) for number in range(1, LINES + 1))
        file.flush()
        live = LiveRun(Path(folder), lambda: None, clock=count().__next__)
        seconds: list[float] = []
        while f"[{20 * LINES}," not in (text := time_state(live, seconds)):
            pass
        late, parts, seconds = sum(seconds), len(seconds), []
        for number in range(LINES + 1, LINES + 201):
            file.write(write_line(number, layers))
            file.flush()
            text = time_state(live, seconds)
    milliseconds = 1e3 * statistics.median(seconds)
    print(
        f"{layers:3} layers: {milliseconds:.2f} ms of CPU for a state of {len(text) / 1e3:.0f} kB; "
        f"opened after {LINES:,} lines, {late:.2f} s once, over {parts} states"
    )
    return {"layers": layers, "state_ms": milliseconds, "state_bytes": len(text), "late_seconds": late}


def time_state(live: LiveRun, seconds: list[float]) -> str:
    began = time.thread_time()
    text = live.as_json()
    text.encode()
    seconds.append(time.thread_time() - began)
    return text


def measure(config: RunConfig, case: str) -> tuple[float, float, str]:
    """Return milliseconds per step, seconds of CPU, and the digest of the weights."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as opened:
        folder = Path(place) / "run"
        how: dict[str, Any] = {}
        if case != "alone":
            said: list[str] = []
            live = opened.enter_context(serve_run(folder, None, said.append))

            def begin(run: Run) -> None:
                live.begin(run)
                if case == "watched":
                    opened.enter_context(subprocess.Popen([sys.executable, "-c", READER, said[0].split()[-1]]))

            how = {"report": live.hear, "beginning": begin}
        began = time.process_time()
        record = execute(config, folder, **how)
        seconds = time.process_time() - began
        if case != "alone":
            live.finish(record)
    return record.step_ms, seconds, record.weights_sha256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="also write what states cost to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure_states(layers) for layers in (2, 31, 200)]
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": versions("cpu"), "rows": rows}, indent=1) + "\n")
    for name, hidden in MODELS.items() if arguments.rounds else ():
        settings = {"epochs": arguments.epochs, "model.hidden": hidden}
        compare(name, configure("split-mnist-5k", "sfao", settings=settings), arguments.rounds)


def compare(name: str, config: RunConfig, rounds: int) -> None:
    steps: dict[str, list[float]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    weights = set()
    measure(config, "alone")
    for number in range(rounds):
        for place in range(len(CASES)):
            case = CASES[(number + place) % len(CASES)]
            step, cpu, digest = measure(config, case)
            steps[case].append(step)
            seconds[case].append(cpu)
            weights.add(digest)
    print(f"{name}: {statistics.median(steps['alone']):.2f} ms a step alone, weights of {len(weights)} kind")
    for case in CASES[1:]:
        print(f"  {case:8} {ratio(steps, case)} the time of a step, {ratio(seconds, case)} the CPU time")


def ratio(values: dict[str, list[float]], case: str) -> str:
    ratios = [one / alone for one, alone in zip(values[case], values["alone"], strict=True)]
    return f"x {statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
