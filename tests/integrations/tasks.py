"""Tasks that a small network forgets, and the loop of our own that integrations are compared with."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils._pytree import tree_flatten

Batch = tuple[Tensor, Tensor]


def make_tasks(count: int = 3, batches: int = 6, seed: int = 0) -> list[list[Batch]]:
    """Return tasks of four kinds of points in twelve dimensions, elsewhere for every task."""
    generator = torch.Generator().manual_seed(seed)
    tasks = []
    for _ in range(count):
        centres = 2 * torch.randn(4, 12, generator=generator)
        kinds = torch.randint(4, (batches * 16,), generator=generator)
        points = centres[kinds] + torch.randn(len(kinds), 12, generator=generator)
        tasks.append(list(zip(points.split(16), kinds.split(16), strict=True)))
    return tasks


def make_network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, task: list[Batch], epochs: int = 1) -> None:
    """Train a task as a loop without any library does."""
    model.train()
    for _ in range(epochs):
        for inputs, targets in task:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()


def measure_gap(one: nn.Module, other: nn.Module) -> float:
    """Return the largest difference between the parameters of two models."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def measure_memory_gap(one: dict[str, object], other: dict[str, object]) -> float:
    """Return the largest difference between the tensors of two states; infinite where anything else differs."""
    (own, spec), (others, other_spec) = tree_flatten(one), tree_flatten(other)
    if spec != other_spec:
        return float("inf")
    gaps = [0.0]
    for a, b in zip(own, others, strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape:
            gaps.append(float((a.double() - b.double()).abs().max()) if a.numel() else 0.0)
        else:
            gaps.append(0.0 if type(a) is type(b) and a == b else float("inf"))
    return max(gaps)
