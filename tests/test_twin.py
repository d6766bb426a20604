"""SFAO beside its float64 twin, one layer and one direction after the other: the same decisions and updates."""

import copy

import pytest
import torch
from torch import nn

from sfao.optimizer import SFAO
from tests.problem import PROJECT
from tests.reference.paper import ReferenceSFAO

MIXED = {"accept_above": 0.4, "discard_below": 0.0, "samples": 3}
CASES = {
    "defaults": {},
    "mixed": MIXED,
    "absolute strict": {**MIXED, "cosine": "absolute", "strict": True},
    "span": {**PROJECT, "capacity": 5},
    "sequential": {**PROJECT, "projection": "sequential"},
    "cone": {**PROJECT, "projection": "cone"},
    "fifo": {**MIXED, "eviction": "fifo", "capacity": 4},
    "reservoir": {**MIXED, "eviction": "reservoir", "capacity": 4},
    "admission": {**MIXED, "admit_below": 0.5, "min_norm": 5.0},
    "factored": {**MIXED, "storage": "factored", "rank": 2},
    "bfloat16": {**PROJECT, "memory_dtype": "bfloat16"},
    "global": {**MIXED, "granularity": "global"},
    "heavy ball": {**MIXED, "momentum_form": "heavy_ball", "nesterov": True, "decoupled_weight_decay": False},
    "maximize": {**MIXED, "maximize": True, "seed": 5},
}


class Layers(nn.ModuleDict):
    """Layers of odd sizes; gradients are made up, so nothing is computed with them."""

    def __init__(self):
        torch.manual_seed(0)
        layers = {"linear": nn.Linear(13, 9), "conv": nn.Conv2d(3, 5, 3), "norm": nn.BatchNorm2d(7)}
        super().__init__({**layers, "one_row": nn.Linear(21, 1), "one_column": nn.Linear(1, 8)})


def make_up(model, task, number):
    """Gradients of a task: partly along what its gradients have in common, back and forth, the rest noise."""
    common = torch.Generator().manual_seed(task)
    own = torch.Generator().manual_seed(1000 * task + number + 1)
    way = float(torch.randn(1, generator=own))
    return [
        way * torch.randn(p.shape, generator=common) + 0.8 * torch.randn(p.shape, generator=own)
        for p in model.parameters()
    ]


@pytest.mark.parametrize("name", CASES)
def test_the_same_decisions_and_updates(name):
    options = {"lr": 0.05, "weight_decay": 0.01, **CASES[name]}
    model = Layers()
    twin_model = copy.deepcopy(model)
    optimizer = SFAO(model, **options)
    groups = [
        {**group, "params": own["params"]}
        for group, own in zip(optimizer.param_groups, SFAO(twin_model).param_groups, strict=True)
    ]
    twin = ReferenceSFAO(groups, granularity=options.get("granularity", "layer"), seed=options.get("seed", 0))

    def give(task, number):
        for gradient, one, other in zip(
            make_up(model, task, number), model.parameters(), twin_model.parameters(), strict=True
        ):
            one.grad, other.grad = gradient.clone(), gradient.clone()

    decided = set()
    for task in range(3):
        for number in range(8):
            give(task, number)
            optimizer.step()
            assert twin.step() == optimizer.last_decisions
            decided |= set(optimizer.last_decisions.values())
            for layer in optimizer.gate.layers:
                update, expected = (
                    torch.cat([p.grad.flatten() for p in layer.parameters]),
                    twin.layers[layer.name].update,
                )
                assert (update - expected).norm() <= 1e-4 * expected.norm() + 1e-6
            if number % 2:
                give(task, number)
                assert optimizer.remember() == twin.remember()
        for parameter, expected in zip(model.parameters(), twin_model.parameters(), strict=True):
            assert torch.allclose(parameter, expected, atol=1e-4)
        optimizer.end_task()
        twin.end_task()
    assert len(decided) >= 2
