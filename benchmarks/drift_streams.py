"""Accuracy of DriftBound on streams of digits, beside the same optimizer without it.

python ../shared/data/unpack.py DATA mnist
SFAO_DATA=DATA python benchmarks/drift_streams.py [--streams split,class] [--seeds 3] [--tolerances 0,0.1] [--every 8]
    [--out FILE.json]

Tolerance 0 is the optimizer alone. All runs of a seed start from the same weights and see the same batches. One seed
of all streams takes six minutes on one CPU thread.

average    accuracy on all tasks after the last: mean and standard deviation over seeds, and the worst seed
learned    accuracy on each task just after it was learned
gain       average, minus that of the optimizer alone with the same seed: mean, and the worst seed
"""

import argparse
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from math import radians
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, avg_pool2d, cross_entropy, grid_sample
from torch.optim import SGD, AdamW, Optimizer

from sfao.drift_bound import DriftBound

BATCH, EPOCHS = 32, 2
#: Images per task in streams where every task has all ten digits.
TRAIN, TEST = 6000, 2000

OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "SGD .001": lambda parameters: SGD(parameters, 0.001),
    "SGD .05": lambda parameters: SGD(parameters, 0.05),
    "SGD .1": lambda parameters: SGD(parameters, 0.1),
    "momentum .02": lambda parameters: SGD(parameters, 0.02, momentum=0.9),
    "momentum .05": lambda parameters: SGD(parameters, 0.05, momentum=0.9),
    "AdamW": lambda parameters: AdamW(parameters, 0.001),
}


# -- Digits and how they change ------------------------------------------------------------------------


@dataclass(frozen=True)
class Digits:
    """Images (n x 1 x 28 x 28) in [0, 1], and their labels."""

    images: Tensor
    labels: Tensor

    def take(self, chosen: Tensor | slice) -> "Digits":
        return Digits(self.images[chosen], self.labels[chosen])


def read_digits(folder: Path, part: str) -> Digits:
    def read(kind: str, header: int) -> np.ndarray:
        with gzip.open(folder / "MNIST" / "raw" / f"{part}-{kind}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    images = read("images-idx3", 16).reshape(-1, 1, 28, 28) / np.float32(255)
    return Digits(torch.from_numpy(images), torch.from_numpy(read("labels-idx1", 8).astype(np.int64)))


def rotate(images: Tensor, degrees: float) -> Tensor:
    angle = torch.tensor(radians(degrees))
    matrix = torch.tensor([[angle.cos(), -angle.sin(), 0], [angle.sin(), angle.cos(), 0]])
    grid = affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return grid_sample(images, grid, align_corners=False)


def permute(images: Tensor, seed: int) -> Tensor:
    order = torch.randperm(784, generator=torch.Generator().manual_seed(seed))
    return images.flatten(1)[:, order].view_as(images)


def add_noise(images: Tensor, strength: float) -> Tensor:
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(0))
    return (images + strength * noise).clamp(0, 1)


def draw_edges(images: Tensor) -> Tensor:
    blurred = avg_pool2d(images, 3, stride=1, padding=1)
    return add_noise((4 * (images - blurred).abs()).clamp(0, 1), 0.3)


def cross_stripes(images: Tensor) -> Tensor:
    """Return digits that are dark on bright stripes, and bright between them."""
    return (images - (torch.arange(28) // 3 % 2)).abs()


STYLES = {"plain": torch.clone, "edges": draw_edges, "stripes": cross_stripes, "inverted": lambda images: 1 - images}


# -- Streams -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    train: Digits
    test: Digits
    #: Outputs of the model that count; the others are cut off.
    outputs: int


@dataclass(frozen=True)
class Stream:
    #: make_tasks(train, test)
    make_tasks: Callable[[Digits, Digits], list[Task]]
    make_model: Callable[[], nn.Module]
    optimizers: tuple[str, ...]


def split_digits(modulus: int, outputs: Iterable[int]) -> Callable[[Digits, Digits], list[Task]]:
    """Return a stream of two digits per task; labels are taken modulo `modulus`."""

    def select(digits: Digits, pair: int) -> Digits:
        chosen = digits.take(digits.labels // 2 == pair)
        return Digits(chosen.images, chosen.labels % modulus)

    return lambda train, test: [Task(select(train, pair), select(test, pair), n) for pair, n in enumerate(outputs)]


def change_digits(
    change: Callable[[Tensor, Any], Tensor], values: Iterable[Any]
) -> Callable[[Digits, Digits], list[Task]]:
    """Return a stream of all ten digits, drawn as change(images, value) in each task."""

    def draw(digits: Digits, value: Any) -> Digits:
        return Digits(change(digits.images, value), digits.labels)

    return lambda train, test: [
        Task(draw(train.take(slice(TRAIN)), value), draw(test.take(slice(TEST)), value), outputs=10) for value in values
    ]


def make_mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def make_cnn() -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*block(1, 8), *block(8, 16), nn.Flatten(), nn.Linear(784, 10))


USUAL = ("SGD .05", "momentum .05", "AdamW")
ROTATIONS = change_digits(rotate, (0, 36, 72, 108, 144))
PAINTED = change_digits(lambda images, style: STYLES[style](images), STYLES)
STREAMS = {
    "split": Stream(split_digits(2, [2] * 5), make_mlp, ("SGD .001", *USUAL)),
    "rotations": Stream(ROTATIONS, make_mlp, USUAL),
    "rotations-cnn": Stream(ROTATIONS, make_cnn, ("AdamW",)),
    "styles-cnn": Stream(PAINTED, make_cnn, ("momentum .02", "SGD .05", "SGD .1", "momentum .05", "AdamW")),
    "permutations": Stream(change_digits(permute, range(10)), make_mlp, ("momentum .05",)),
    # Nothing to forget: a bound can only cost something.
    "same": Stream(change_digits(add_noise, [0] * 5), make_mlp, USUAL),
    "noise": Stream(change_digits(add_noise, (0, 0.2, 0.4, 0.6, 0.8)), make_mlp, USUAL),
    # One softmax over the classes seen so far.
    "class": Stream(split_digits(10, (2, 4, 6, 8, 10)), make_mlp, ("SGD .05", "AdamW")),
}


# -- Runs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    stream: str
    optimizer: str
    tolerance: float
    seed: int
    average: float
    learned: float
    seconds: float


def make_batches(digits: Digits, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in torch.randperm(len(digits.labels), generator=generator).split(BATCH):
        yield digits.images[batch], digits.labels[batch]


@torch.no_grad()
def measure_accuracy(model: nn.Module, digits: Digits, outputs: int) -> float:
    model.eval()
    predicted = model(digits.images)[:, :outputs].argmax(1)
    model.train()
    return float((predicted == digits.labels).float().mean())


def learn(tasks: list[Task], model: nn.Module, optimizer: Optimizer, bound: Any, seed: int) -> tuple[float, float]:
    """Learn one task after the other; return the average accuracy at the end, and that just after learning."""
    generator, learned = torch.Generator().manual_seed(seed), []
    for task in tasks:

        def loss(logits: Tensor, labels: Tensor, outputs: int = task.outputs) -> Tensor:
            return cross_entropy(logits[:, :outputs], labels)

        for _ in range(EPOCHS):
            for x, y in make_batches(task.train, generator):
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
        learned.append(measure_accuracy(model, task.test, task.outputs))
        finished = list(make_batches(task.train, generator))
        if bound is not None:
            bound.consolidate(finished, loss)
    return fmean(measure_accuracy(model, task.test, tasks[-1].outputs) for task in tasks), fmean(learned)


def run(name: str, tasks: list[Task], optimizer_name: str, tolerance: float, seed: int, every: int) -> Run:
    torch.manual_seed(seed)
    model = STREAMS[name].make_model()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    bound = DriftBound(model, tolerance, every=every).attach(optimizer) if tolerance else None
    start = perf_counter()
    average, learned = learn(tasks, model, optimizer, bound, seed)
    return Run(name, optimizer_name, tolerance, seed, average, learned, perf_counter() - start)


def format_table(runs: list[Run]) -> str:
    alone = {(run.stream, run.optimizer, run.seed): run.average for run in runs if not run.tolerance}
    lines = ["stream         optimizer     tolerance  average        worst  learned  gain    worst"]
    for key in dict.fromkeys((run.stream, run.optimizer, run.tolerance) for run in runs):
        own = [run for run in runs if (run.stream, run.optimizer, run.tolerance) == key]
        averages, learned = [run.average for run in own], fmean(run.learned for run in own)
        spread = stdev(averages) if len(own) > 1 else 0.0
        line = f"{key[0]:14} {key[1]:13} {key[2]:<9g}  {fmean(averages):.3f} +- {spread:.3f}"
        line += f"  {min(averages):.3f}  {learned:.3f}"
        if alone and key[2]:
            gains = [run.average - alone[run.stream, run.optimizer, run.seed] for run in own]
            line += f"    {fmean(gains):+.3f}  {min(gains):+.3f}"
        lines.append(line)
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=lambda text: text.split(","), default=list(STREAMS), help="names, by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tolerances", type=lambda text: [float(t) for t in text.split(",")], default=[0.0, 0.1])
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--out", type=Path, help="also write every run to this file")
    arguments = parser.parse_args()
    if unknown := set(arguments.streams) - set(STREAMS):
        parser.error(f"--streams must be of {', '.join(STREAMS)}, got {', '.join(sorted(unknown))}")
    if "SFAO_DATA" not in os.environ:
        parser.error("$SFAO_DATA must name the folder that holds MNIST/raw")
    return arguments


def main() -> None:
    arguments, runs = parse_arguments(), []
    torch.set_num_threads(1)
    train, test = (read_digits(Path(os.environ["SFAO_DATA"]), part) for part in ("train", "t10k"))
    for name in arguments.streams:
        tasks = STREAMS[name].make_tasks(train, test)
        for optimizer in STREAMS[name].optimizers:
            for seed in range(arguments.seeds):
                for tolerance in arguments.tolerances:
                    runs.append(run(name, tasks, optimizer, tolerance, seed, arguments.every))
                    print(runs[-1], file=sys.stderr)
    print(format_table(runs))
    if arguments.out:
        found = {"every": arguments.every, "torch": torch.__version__, "runs": [asdict(run) for run in runs]}
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
