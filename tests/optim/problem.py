"""A small continual problem that the optimizer tests share."""

import torch
from torch import Tensor, nn

from sfao import SFAO

loss = nn.CrossEntropyLoss()


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


def trained(model: nn.Module, optimizer: SFAO, tasks: int = 2) -> SFAO:
    for number in range(tasks):
        train(model, optimizer, task(number))
        optimizer.consolidate(model, task(number), loss)
    return optimizer


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
