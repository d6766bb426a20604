"""A small model that ranks hold in shards, beside the same one in one process."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import sfao

LOSS = nn.CrossEntropyLoss()
EXAMPLES, INPUTS, CLASSES = 24, 12, 3
Batches = list[tuple[Tensor, Tensor]]


def make_model() -> nn.Sequential:
    """A model with layers that ranks cannot share evenly: 17 rows, 2 rows, 3 rows."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(INPUTS, 17), nn.LayerNorm(17), nn.ReLU(), nn.Linear(17, 2), nn.Tanh(), nn.Linear(2, CLASSES)
    )


def shard(model: nn.Module, size: int) -> nn.Module:
    mesh = init_device_mesh("cpu", (size,))
    for module in model.children():
        if list(module.parameters()):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def split_tensors(model: nn.Module, size: int) -> nn.Module:
    """The same model by tensor parallel: the first layer by its rows, the second by its columns, the others whole."""
    return parallelize_module(
        model,
        init_device_mesh("cpu", (size,)),
        {"0": ColwiseParallel(output_layouts=_WHOLE), "3": RowwiseParallel(input_layouts=_WHOLE)},
    )


def _whole() -> Any:
    from torch.distributed.tensor import Replicate

    return Replicate()


_WHOLE = _whole()


def make_task(number: int, rank: int = 0, size: int = 1) -> Batches:
    """A rank's share of the batches of a task."""
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(EXAMPLES, INPUTS, generator=generator)
    targets = (inputs @ torch.randn(INPUTS, CLASSES, generator=generator)).argmax(1)
    own = slice(rank * EXAMPLES // size, (rank + 1) * EXAMPLES // size)
    return list(zip(inputs[own].split(6), targets[own].split(6), strict=True))


def join(batches: Batches) -> tuple[Tensor, Tensor]:
    return torch.cat([inputs for inputs, _ in batches]), torch.cat([targets for _, targets in batches])


class Training:
    """Trains a model on one task after the other."""

    def __init__(
        self, model: nn.Module, make_optimizer: Callable[[nn.Module], Any], rank: int = 0, size: int = 1
    ) -> None:
        self.model, self.rank, self.size = model, rank, size
        self.optimizer, self.attached = make_optimizer(model)

    def train(self, task: int, steps: int) -> None:
        inputs, targets = join(make_task(task, self.rank, self.size))
        for _ in range(steps):
            self.optimizer.zero_grad()
            LOSS(self.model(inputs), targets).backward()
            self.optimizer.step()

    def consolidate(self, task: int) -> None:
        owner = self.optimizer if hasattr(self.optimizer, "consolidate") else self.attached
        owner.consolidate(make_task(task, self.rank, self.size), LOSS)

    def run(self, tasks: Sequence[int] = (0, 1, 2), steps: int = 3) -> "Training":
        for task in tasks:
            self.train(task, steps)
            self.consolidate(task)
        return self


def use_sfao(**options: Any) -> Callable[[nn.Module], Any]:
    def make(model: nn.Module) -> Any:
        optimizer = sfao.SFAO(model, **{"lr": 0.05, **options})
        return optimizer, optimizer.gate

    return make


def use_adamw(**options: Any) -> Callable[[nn.Module], Any]:
    def make(model: nn.Module) -> Any:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return optimizer, sfao.Gate(model, **options).attach(optimizer)

    return make


def use_bound(**options: Any) -> Callable[[nn.Module], Any]:
    def make(model: nn.Module) -> Any:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return optimizer, sfao.DriftBound(model, every=2, **options).attach(optimizer)

    return make


OPTIMIZERS = {"sfao": use_sfao, "adamw": use_adamw, "bound": use_bound}


def read_whole(model: nn.Module) -> list[Tensor]:
    return [(p.full_tensor() if isinstance(p, DTensor) else p).detach().clone() for p in model.parameters()]


def measure_gap(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))
