"""Small models and tasks for the tests of DriftBound, and the drift of a layer from its outputs."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

from sfao.drift_bound import DriftBound

Batches = list[tuple[Tensor, Tensor]]


def make_batches(*shape: int, count: int = 3, classes: int = 4, seed: int = 0, shift: float = 0.0) -> Batches:
    """Return `count` batches of inputs of this shape, with labels."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(*shape, generator=generator, dtype=torch.float32) + shift,
            torch.randint(classes, shape[:1], generator=generator),
        )
        for _ in range(count)
    ]


def make_mlp(width: int = 6) -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 4))


def make_cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, 4)
    )


def train(
    model: Callable[..., Tensor], optimizer: Optimizer, batches: Batches, steps: int = 5, loss: Any = cross_entropy
) -> None:
    """Take some steps on the batches."""
    for number in range(steps):
        x, y = batches[number % len(batches)]
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def make_bound(
    model: nn.Module, *, lr: float = 0.5, energy: float = 1.0, **options: Any
) -> tuple[DriftBound, Optimizer]:
    """Return a bound with all axes, attached to an SGD with a high learning rate."""
    optimizer = SGD(model.parameters(), lr=lr)
    return DriftBound(model, energy=energy, **options).attach(optimizer), optimizer


def consolidated(model: nn.Module, batches: Batches, **options: Any) -> tuple[DriftBound, Optimizer]:
    """Return a bound with one task, and its optimizer."""
    bound, optimizer = make_bound(model, examples=count_examples(batches), **options)
    bound.consolidate(batches, cross_entropy)
    return bound, optimizer


def count_examples(batches: Batches) -> int:
    return sum(len(x) for x, _ in batches)


def copy_weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def record_calls(model: nn.Module, batches: Batches) -> dict[str, list[Tensor]]:
    """Return the inputs of each call of every layer with weights, all batches joined, in eval mode."""
    calls: dict[str, list[list[Tensor]]] = {}

    def record(name: str) -> Callable[..., None]:
        return lambda _, args: calls[name][-1].append(args[0].detach().clone())

    named = [(name, module) for name, module in model.named_modules() if module._parameters]
    handles = [module.register_forward_pre_hook(record(name)) for name, module in named]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    for x, _ in batches:
        for name, _ in named:
            calls.setdefault(name, []).append([])
        with torch.no_grad():
            model(x)
    for handle in handles:
        handle.remove()
    for module, mode in modes:
        module.training = mode
    return {name: [torch.cat(parts) for parts in zip(*batch, strict=True)] for name, batch in calls.items()}


def drift_of_outputs(module: nn.Module, anchor: nn.Module, tasks: Sequence[Tensor]) -> float:
    """Return sqrt(E |W x - W* x|^2 / E |W* x|^2) in float64: a mean over a task's inputs, summed over tasks."""
    now, before = deepcopy(module).double().eval(), deepcopy(anchor).double().eval()
    drift = energy = 0.0
    with torch.no_grad():
        for x in tasks:
            x = x.double() if x.is_floating_point() else x
            old, new = before(x), now(x)
            drift += float((new - old).square().mean())
            energy += float(old.square().mean())
    return (drift / energy) ** 0.5


def drifts(model: nn.Module, anchor: nn.Module, calls: dict[str, list[Tensor]]) -> Iterator[tuple[str, float]]:
    """Yield the drift of every call of every layer of a model."""
    for name, inputs in calls.items():
        for x in inputs:
            yield name, drift_of_outputs(model.get_submodule(name), anchor.get_submodule(name), [x])
