"""A small continual problem that the tests of the paper's gate share."""

import torch
from torch import Tensor, nn

from sfao.optimizer import SFAO

loss = nn.CrossEntropyLoss()
#: Whatever the cosine, project.
PROJECT = {"accept_above": 1.0, "discard_below": -1.0}


def network(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def task(seed: int, batches: int = 6, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor]]:
    """Batches of a random classification task."""
    generator = torch.Generator().manual_seed(1000 + seed)
    teacher = torch.randn(12, 3, generator=generator)
    inputs = torch.randn(batches, 16, 12, generator=generator)
    return [(batch.to(dtype), (batch @ teacher).argmax(1)) for batch in inputs]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches, epochs: int = 1) -> None:
    for _ in range(epochs):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            optimizer.step()


def make_trained(tasks: int = 2, model: nn.Module | None = None, **options) -> tuple[nn.Module, SFAO]:
    """A model and its SFAO after some tasks."""
    model = network() if model is None else model
    optimizer = SFAO(model, **{"lr": 0.1, "momentum": 0.0, **options})
    for number in range(tasks):
        train(model, optimizer, task(number))
        optimizer.consolidate(task(number), loss)
    return model, optimizer


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def directions(optimizer, layer: str) -> Tensor:
    """The directions of a layer as rows."""
    memory = next(found.memory for found in optimizer.gate.layers if found.name == layer)
    parts = []
    for part in memory.parts:
        held = part.held
        if part.kind == "factored":
            held = [(held[0].mT @ right).flatten(1) for right in held[1:]]
        parts += [tensor.float() for tensor in held]
    return torch.cat(parts, 1)
