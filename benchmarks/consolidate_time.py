"""The cost of consolidating a task, against training it for two epochs.

    python benchmarks/consolidate_time.py [--rounds 3] [--data-root FOLDER] [--json consolidate_time.json]

The first and the third task of Split MNIST (MLP-256) and Split CIFAR-10 (CNN), batch 32, learning rate 1e-3, through
the laboratory's methods. Everything takes turns in one process and a number is a median. `sgd` is two epochs of plain
descent, `own` two epochs of the method's own steps; "next" is what the first step after it costs beyond the others: it
takes the Gram matrix of what was stored and factors it.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from sfao.data.dataset import load_dataset
from sfao.methods import METHODS, Training
from sfao.methods.method import Method
from sfao.models import build_model
from sfao.streams.stream import Stream
from sfao.streams.suite import make_stream

BATCH, EPOCHS = 32, 2
#: Steps of the method itself that are timed; its two epochs are so many times as long.
OWN_STEPS = 40
TASKS = 3
MODELS = {"split-mnist": "mlp", "split-cifar10": "cnn"}
DATASETS = {"split-mnist": "mnist", "split-cifar10": "cifar10"}
GLOBAL = {"granularity": "global", "accept_above": 0.7, "samples": 200}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sfao logit, factored (recommended)": ("sfao", {**GLOBAL, "target": "logit", "storage": "factored"}),
    "sfao logit, a gate a layer": ("sfao", {"target": "logit", "storage": "factored"}),
    "sfao loss, factored": ("sfao", {"target": "loss", "storage": "factored"}),
    "sfao loss, dense": ("sfao", {"target": "loss"}),
    "sfao loss, fifo, dense (released)": ("sfao", {**GLOBAL, "target": "loss", "eviction": "fifo"}),
    "ogd logit, factored": ("ogd", {"storage": "factored", "capacity": 200}),
}


def time_call(body: Callable[[], object]) -> float:
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


def make_method(name: str, options: dict[str, Any], stream: Stream, model: str) -> Method:
    method = METHODS[name]
    network = build_model(model, stream.input_shape, stream.outputs, 0)
    training = Training(1e-3, 0.0, "ema", 0.0, BATCH, EPOCHS, 0)
    return method(network, training, method.Options(**options))


def train(method: Method, stream: Stream, number: int, steps: int | None = None) -> list[float]:
    """Return the seconds of each step, with the making of its batch."""
    task, seconds = stream.tasks[number], []
    order = torch.Generator().manual_seed(number)
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for inputs, targets in task.train.batches(BATCH, order):
            method.step(inputs, targets, task.outputs)
            now = time.perf_counter()
            seconds.append(now - start)
            start = now
            if len(seconds) == steps:
                return seconds
    return seconds


def time_round(stream: Stream, model: str, found: dict[str, dict[str, list[float]]]) -> None:
    plain = make_method("sgd", {}, stream, model)
    methods = {label: make_method(*case, stream, model) for label, case in CASES.items()}
    for number in range(TASKS):
        sgd = sum(train(plain, stream, number))
        for label, method in methods.items():
            method.begin_task(number, stream.tasks[number])
            first, *others = train(method, stream, number, OWN_STEPS)
            a_step = statistics.median(others)
            own = a_step * EPOCHS * -(-len(stream.tasks[number].train) // BATCH)
            order = torch.Generator().manual_seed(number)
            seconds = time_call(lambda m=method, n=number, o=order: m.end_task(n, stream.tasks[n], o))
            row = found[f"{label}, task {number + 1}"]
            for name, value in (("sgd", sgd), ("own", own), ("consolidate", seconds)):
                row[name].append(value)
            if number:
                found[f"{label}, task {number}"]["next"].append(first - a_step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is timed (default 3)")
    parser.add_argument("--benchmark", choices=list(MODELS), action="append", help="only this one")
    parser.add_argument("--data-root", help="where the data sets are (default $SFAO_DATA)")
    parser.add_argument("--json", help="also write the numbers to this file")
    arguments = parser.parse_args()
    result: dict[str, Any] = {}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {arguments.rounds}, milliseconds")
    for benchmark in arguments.benchmark or MODELS:
        dataset = load_dataset(DATASETS[benchmark], arguments.data_root)
        settings: dict[str, Any] = {"tasks": None, "scenario": "domain", "seed": 0, "order": None, "validation": 0.0}
        stream = make_stream(benchmark, dataset, **settings)
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for _ in range(arguments.rounds):
            time_round(stream, MODELS[benchmark], found)
        medians = {
            label: {name: 1e3 * statistics.median(values) for name, values in row.items()}
            for label, row in found.items()
            if not label.endswith("task 2")
        }
        print(f"\n{benchmark + ', ' + MODELS[benchmark]:48}{'consolidate':>12}{'/ sgd':>8}{'/ own':>8}{'next':>8}")
        for label, row in medians.items():
            shares = f"{row['consolidate'] / row['sgd']:8.1%}{row['consolidate'] / row['own']:8.1%}"
            print(f"{label:48}{row['consolidate']:12.1f}{shares}{row.get('next', float('nan')):8.1f}")
        result[benchmark] = medians
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"torch": torch.__version__, "threads": torch.get_num_threads(), **result}, file, indent=2)


if __name__ == "__main__":
    main()
