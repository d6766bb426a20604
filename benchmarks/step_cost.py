"""Time of a training step with DriftBound and SFAO, next to the optimizer alone.

    SFAO_DATA=DATA python benchmarks/step_cost.py      # MLP and CNN on one CPU thread
    python benchmarks/step_cost.py --model wrn --device cuda

The small models see digits of MNIST if $SFAO_DATA names the folder that holds them, otherwise noise, which is the worst
case for DriftBound: it stores an axis for almost every input.

All variants run interleaved in one process, in rounds of `--steps` steps, each ended by a forward pass in eval mode, so
that projections before evaluation are counted too. Printed are medians over rounds, and their ratios.
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import sfao
from sfao.lab.models import cnn, mlp, wrn_28_10

SHAPES = {"mlp": (1, 28, 28), "cnn": (1, 28, 28), "wrn": (3, 32, 32)}
BUILDERS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp, "cnn": cnn, "wrn": wrn_28_10}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


class Training:
    """A model in training: one variant."""

    def __init__(self, name: str, model: str, device: str, batch: int, every: int) -> None:
        torch.manual_seed(0)
        self.model = BUILDERS[model](SHAPES[model], 10).to(device)
        if device == "cuda":
            self.model = self.model.to(memory_format=torch.channels_last)
        self.loss = nn.CrossEntropyLoss()
        self.x, self.y = (tensor.to(device) for tensor in draw(model, batch))
        kind, _, optimizer = name.partition("+")
        self.gate: Any = None
        if kind == "sfao":
            storage = "factored" if model == "wrn" else "dense"
            self.optimizer: Any = sfao.SFAO(self.model, lr=1e-2, storage=storage, momentum=0.0)
            self.gate = self.optimizer
        else:
            self.optimizer = OPTIMIZERS[optimizer or kind](self.model.parameters())
        if kind == "bound":
            self.gate = sfao.DriftBound(self.model, every=every).attach(self.optimizer)
        self.consolidation = 0.0
        self.train(3)
        if self.gate is not None:
            past = [tuple(t.to(device) for t in draw(model, 100)) for _ in range(6)]
            for _ in range(2):  # the first one also warms up
                synchronize(device)
                start = time.perf_counter()
                self.gate.consolidate(past, self.loss)
                synchronize(device)
                self.consolidation = time.perf_counter() - start
                self.train(1)
            self.x, self.y = (tensor.to(device) for tensor in draw(model, batch))
        self.device = device

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss(self.model(self.x), self.y).backward()
            self.optimizer.step()

    def measure(self, steps: int) -> float:
        """Return seconds per step, of steps and one forward pass in eval mode."""
        synchronize(self.device)
        start = time.perf_counter()
        self.train(steps)
        self.model.eval()
        with torch.no_grad():
            self.model(self.x)
        self.model.train()
        synchronize(self.device)
        return (time.perf_counter() - start) / steps


def draw(model: str, count: int) -> tuple[Tensor, Tensor]:
    labels = torch.randint(0, 10, (count,))
    if "SFAO_DATA" not in os.environ or model == "wrn":
        return torch.randn(count, *SHAPES[model]), labels
    with gzip.open(Path(os.environ["SFAO_DATA"]) / "MNIST" / "raw" / "train-images-idx3-ubyte.gz") as file:
        digits = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=16).view(-1, 1, 28, 28)
    return digits[torch.randint(0, len(digits), (count,))] / 255, labels


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mlp,cnn", help="mlp, cnn or wrn, separated by commas")
    parser.add_argument("--variants", default="sgd,bound+sgd,adamw,bound+adamw,sfao")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--steps", type=int, default=64, help="steps per round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for model in options.model.split(","):
        names = options.variants.split(",")
        runs = {name: Training(name, model, options.device, options.batch, options.every) for name in names}
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name, run in runs.items():
                times[name].append(run.measure(options.steps))
        print(f"{model}, batch {options.batch}, {options.device}, every {options.every}")
        for name in names:
            alone = name.partition("+")[2] or "sgd"
            ratio = median(times[name]) / median(times[alone]) if alone in times else float("nan")
            step = median(times["sgd"]) if "sgd" in times else float("nan")
            run = runs[name]
            row: dict[str, Any] = {"model": model, "variant": name, "ms": 1e3 * median(times[name]), "ratio": ratio}
            row["consolidate_ms"] = 1e3 * run.consolidation
            row["consolidate_steps"] = run.consolidation / step
            row["memory_mb"] = run.gate.memory_bytes / 1e6 if run.gate else 0.0
            rows.append(row)
            print(
                f"  {name:12} {row['ms']:8.3f} ms  {ratio:5.2f}x   consolidate {row['consolidate_ms']:8.1f} ms "
                f"({row['consolidate_steps']:.0f} steps)   memory {row['memory_mb']:.1f} MB"
            )
    if options.out:
        Path(options.out).write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
