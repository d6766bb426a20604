"""Your own data, model and method in the laboratory. Takes some seconds.

    python examples/own_stream.py

Three tasks of points in 20 dimensions, two classes each, told apart by another direction in every task. Every task
moves all weights of a small network, which forgets the one before. Beside methods of the laboratory stands one that is
defined here: it learns ever more slowly.
"""

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from sfao import lab
from sfao.lab.methods import Method
from sfao.lab.streams.stream import Task

TASKS, FEATURES, SEEDS = 3, 20, 3


def points(task: int, count: int, seed: int) -> Dataset[tuple[torch.Tensor, ...]]:
    """Return points around two centres; their difference is another axis in every task, and their mean too."""
    generator = torch.Generator().manual_seed(100 * task + seed)
    labels = torch.randint(2, (count,), generator=generator)
    noise = 0.5 * torch.randn(count, FEATURES, generator=generator)
    noise[:, task] += 2.0 * labels - 1
    noise[:, TASKS + task] += 2
    return TensorDataset(noise, labels)


def tasks() -> dict[str, tuple[Dataset[tuple[torch.Tensor, ...]], Dataset[tuple[torch.Tensor, ...]]]]:
    """Return {name: (train, test)}; a list of pairs would do."""
    return {f"axis {task}": (points(task, 600, seed=0), points(task, 300, seed=1)) for task in range(TASKS)}


def network(input_shape: tuple[int, ...], outputs: int, width: int = 32) -> nn.Module:
    """Return the model of a run; `width` is one of its sizes, so `model.width` is a setting."""
    return nn.Sequential(nn.Linear(input_shape[0], width), nn.ReLU(), nn.Linear(width, outputs))


class Slower(Method):
    """Gradient descent whose rate is halved after every task."""

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        for group in self.optimizer.param_groups:
            group["lr"] /= 2


def main() -> None:
    result = lab.compare(
        tasks,
        methods=["sgd", "ewc", "agem", "sfao", "drift-bound", Slower],
        model=network,
        seeds=SEEDS,
        settings={"lr": 0.05, "epochs": 3, "ewc:options.strength": 30},
    )
    print(result)
    for method, forgotten in result.means("average_forgetting").items():
        print(f"{method:20} forgets {forgotten:.3f}")


if __name__ == "__main__":
    main()
