"""A small model that ranks hold in shards, beside the same one in one process."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import sfao
from sfao.distributed import full_tensor

LOSS = nn.CrossEntropyLoss()
EXAMPLES, INPUTS, CLASSES = 24, 12, 3
Batches = list[tuple[Tensor, Tensor]]


def make_model() -> nn.Sequential:
    """Return a model with layers that ranks can't share evenly: 17 rows, 2 rows, 3 rows."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(INPUTS, 17), nn.LayerNorm(17), nn.ReLU(), nn.Linear(17, 2), nn.Tanh(), nn.Linear(2, CLASSES)
    )


def shard(model: nn.Module, size: int, **how: Any) -> nn.Module:
    mesh = init_device_mesh("cpu", (size,))
    for module in model.children():
        if list(module.parameters()):
            fully_shard(module, mesh=mesh, **how)
    return fully_shard(model, mesh=mesh, **how)


def split_tensors(model: nn.Module, size: int) -> nn.Module:
    """Tensor parallel: the first layer by its rows, the second by its columns, the others whole."""
    plan = {"0": ColwiseParallel(output_layouts=Replicate()), "3": RowwiseParallel(input_layouts=Replicate())}
    return parallelize_module(model, init_device_mesh("cpu", (size,)), plan)


def make_task(number: int, rank: int = 0, size: int = 1) -> Batches:
    """Return a rank's share of the batches of a task."""
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(EXAMPLES, INPUTS, generator=generator)
    targets = (inputs @ torch.randn(INPUTS, CLASSES, generator=generator)).argmax(1)
    own = slice(rank * EXAMPLES // size, (rank + 1) * EXAMPLES // size)
    return list(zip(inputs[own].split(6), targets[own].split(6), strict=True))


class Training:
    """Trains a model on one task after the other with SFAO, or with AdamW and a gate or bound.

    The decisions of gates are kept.
    """

    def __init__(
        self, model: nn.Module, kind: str, options: dict[str, Any] | None = None, rank: int = 0, size: int = 1
    ) -> None:
        self.model, self.rank, self.size = model, rank, size
        options = options or {}
        self.owner: Any
        if kind == "sfao":
            self.optimizer: Any = sfao.SFAO(model, **{"lr": 0.05, "momentum": 0.0, **options})
            self.owner, self.attached = self.optimizer, self.optimizer.gate
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            made = sfao.Gate(model, **options) if kind == "gate" else sfao.DriftBound(model, **{"every": 2, **options})
            self.owner = self.attached = made.attach(self.optimizer)
        self.decisions: list[Any] = []

    def backward(self, task: int) -> None:
        inputs, targets = (torch.cat(parts) for parts in zip(*make_task(task, self.rank, self.size), strict=True))
        self.optimizer.zero_grad()
        LOSS(self.model(inputs), targets).backward()

    def train(self, task: int, steps: int) -> None:
        for _ in range(steps):
            self.backward(task)
            self.optimizer.step()
            self.decisions.append(getattr(self.attached, "last_decisions", None))

    def run(self, tasks: Iterable[int] = range(3), steps: int = 3, **how: Any) -> "Training":
        for task in tasks:
            self.train(task, steps)
            self.owner.consolidate(make_task(task, self.rank, self.size), LOSS, **how)
        return self


def read_whole(model: nn.Module) -> list[Tensor]:
    return [full_tensor(parameter.detach()).clone() for parameter in model.parameters()]


def measure_gap(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))
