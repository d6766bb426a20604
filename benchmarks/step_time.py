"""Time and bytes of a training step with the gate on, against SGD and against the released code's loop.

    python benchmarks/step_time.py [--turns 20] [--json step_time.json]

MLP 784-256-10, batch 32, every step projecting. All variants take turns in one process; a number is the
median over the turns, and the ratios are what to compare between machines.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from sfao import SFAO, Decision, layer_groups

DIRECTIONS = 200
BATCH = 32
STEPS_A_TURN = 5
# Thresholds no cosine reaches: the gate samples and compares as always, and projects at every step.
ALWAYS_PROJECT = {"accept_above": 0.999, "discard_below": -0.999}


@dataclass
class Row:
    name: str
    milliseconds: float
    ratio: float
    megabytes: float
    workspace_megabytes: float


class ReleasedLoop(torch.optim.SGD):
    """Gate and project the way the released code does: one vector for the model, one direction at a time."""

    def __init__(self, model: nn.Module, directions: int) -> None:
        super().__init__(model.parameters(), lr=1e-3)
        size = sum(parameter.numel() for parameter in model.parameters())
        self.directions = [_unit(torch.randn(size)) for _ in range(directions)]

    @torch.no_grad()
    def step(self) -> None:
        parameters = self.param_groups[0]["params"]
        gradient = torch.cat([parameter.grad.flatten() for parameter in parameters])
        largest = max(abs(float(gradient @ d / (gradient.norm() * d.norm()))) for d in self.directions)
        if largest <= ALWAYS_PROJECT["accept_above"]:
            for direction in self.directions:
                gradient = gradient - (gradient @ direction) * direction
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, part in zip(parameters, gradient.split(sizes), strict=True):
            parameter.grad.copy_(part.view_as(parameter))
        super().step()

    @property
    def memory_bytes(self) -> int:
        return sum(direction.nbytes for direction in self.directions)


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def full_of_directions(model: nn.Module, directions: int, tasks: int = 1, **options: object) -> SFAO:
    """An optimizer whose memory holds `directions` random directions a layer, offered by so many tasks."""
    optimizer = SFAO(layer_groups(model), lr=1e-3, capacity=directions, **ALWAYS_PROJECT, **options)
    for _ in range(tasks):
        for _ in range(directions):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.remember()
        optimizer.end_task()
    optimizer.zero_grad()
    return optimizer


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    inputs, targets = torch.randn(BATCH, 784), torch.randint(0, 10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def timed(steps: dict[str, Callable[[], None]], turns: int) -> dict[str, float]:
    """Median milliseconds of each step. The variants take turns, several steps each: in training, too, the
    step before was one of the same kind and left the caches as it needs them, so the first of a turn is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(turns):
        for name, step in steps.items():
            step()
            for _ in range(STEPS_A_TURN):
                start = time.perf_counter()
                step()
                seconds[name].append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(values) for name, values in seconds.items()}


def compare(turns: int) -> list[Row]:
    optimizers: dict[str, torch.optim.Optimizer] = {}
    steps: dict[str, Callable[[], None]] = {}
    makers: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
        "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=1e-3),
        "released-code loop": lambda model: ReleasedLoop(model, DIRECTIONS),
        "SFAO dense float32": lambda model: full_of_directions(model, DIRECTIONS),
        "SFAO dense bfloat16": lambda model: full_of_directions(model, DIRECTIONS, memory_dtype="bfloat16"),
        "SFAO factored rank 1": lambda model: full_of_directions(model, DIRECTIONS, storage="factored"),
        "SFAO factored rank 4": lambda model: full_of_directions(model, DIRECTIONS, storage="factored", rank=4),
    }
    for name, make in makers.items():
        model = mlp()
        optimizers[name] = make(model)
        steps[name] = training_step(model, optimizers[name])
    times = timed(steps, turns)
    for optimizer in optimizers.values():
        if isinstance(optimizer, SFAO):
            assert set(optimizer.last_decisions.values()) == {Decision.PROJECT}
    return [
        Row(
            name,
            times[name],
            times[name] / times["SGD"],
            getattr(optimizer, "memory_bytes", 0) / 1e6,
            getattr(optimizer, "workspace_bytes", 0) / 1e6,
        )
        for name, optimizer in optimizers.items()
    ]


def growth(turns: int) -> dict[str, dict[str, float]]:
    """Milliseconds against directions held (one task), and against tasks seen (memory full from the first)."""
    directions = {str(n): ("factored", n, 1) for n in (50, 100, 200, 400, 800)}
    tasks = {str(t): ("factored", DIRECTIONS, t) for t in (1, 2, 5, 10)}
    grown: dict[str, dict[str, float]] = {}
    for label, cases in (("directions", directions), ("tasks", tasks)):
        steps = {}
        for name, (storage, held, seen) in cases.items():
            model = mlp()
            steps[name] = training_step(model, full_of_directions(model, held, seen, storage=storage))
        grown[label] = timed(steps, turns)
    return grown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--turns", type=int, default=20, help=f"turns of {STEPS_A_TURN} steps for each variant (default 20)"
    )
    parser.add_argument("--json", help="also write the numbers to this file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = compare(arguments.turns)
    grown = growth(arguments.turns)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, MLP 784-256-10, batch {BATCH}, "
        f"{DIRECTIONS} directions a layer, every step projecting, median of {arguments.turns * STEPS_A_TURN}\n"
    )
    print("MB held: the directions; MB beside: their Gram matrices and factors, in float64\n")
    print(f"{'':24}{'ms':>9}{'x SGD':>9}{'MB held':>10}{'MB beside':>11}")
    for row in rows:
        print(
            f"{row.name:24}{row.milliseconds:9.2f}{row.ratio:9.1f}{row.megabytes:10.2f}{row.workspace_megabytes:11.2f}"
        )
    for label, cases in grown.items():
        print(f"\nfactored rank 1, ms by number of {label}")
        print("".join(f"{name:>9}" for name in cases))
        print("".join(f"{value:9.2f}" for value in cases.values()))
    if arguments.json:
        result = {
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "turns": arguments.turns,
            "rows": [asdict(row) for row in rows],
            "growth": grown,
        }
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
