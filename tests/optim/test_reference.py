"""The optimizer stepped beside its reference twin: same decisions, same updates, same memory."""

import copy

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision, layer_groups
from sfao.optim.reference import ReferenceSFAO
from tests.optim.problem import loss, network, task, weights

STEPS_A_TASK = 12


def convolutional(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 3, 4)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48, 3),
    )


def side_by_side(make_model=network, tasks: int = 3, tolerance: float = 2e-4, **options):
    """Train both over some tasks from equal parameters at every step; returns the decisions that occurred."""
    fast_model = make_model()
    slow_model = copy.deepcopy(fast_model)
    fast = SFAO(layer_groups(fast_model), **{"lr": 0.05, **options})
    named = [
        {**group, "params": own["params"]}
        for group, own in zip(fast.param_groups, layer_groups(slow_model), strict=True)
    ]
    slow = ReferenceSFAO(named, granularity=options.get("granularity", "layer"), seed=options.get("seed", 0))
    seen = set()
    for number in range(tasks):
        batches = task(number)
        for step in range(STEPS_A_TASK):
            slow_model.load_state_dict(fast_model.state_dict())
            inputs, targets = batches[step % len(batches)]
            for model in (fast_model, slow_model):
                model.zero_grad()
                loss(model(inputs), targets).backward()
            largest = max(float(p.grad.abs().max()) for p in slow_model.parameters())
            before = weights(slow_model)
            decisions = slow.step()
            fast.step()
            assert fast.last_decisions == decisions
            moved = (weights(slow_model) - before).abs().max()
            assert (weights(fast_model) - weights(slow_model)).abs().max() <= tolerance * (moved + 1e-3 * largest)
            assert abs(fast.risk() - slow.risk()) <= 1e-5 + tolerance * slow.risk()
            seen.update(decisions.values())
            if step % 2:
                for model in (fast_model, slow_model):
                    model.zero_grad()
                    loss(model(inputs), targets).backward()
                assert fast.remember() == slow.remember()
        fast.end_task()
        slow.end_task()
    return seen


EVERY = {Decision.ACCEPT, Decision.PROJECT, Decision.DISCARD}


def test_every_decision_is_reached_and_agreed_on():
    assert side_by_side(accept_above=0.5, discard_below=0.1, samples=3) == EVERY


@pytest.mark.parametrize("cosine", ["signed", "absolute"])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("granularity", ["layer", "global"])
def test_gates(cosine, strict, granularity):
    seen = side_by_side(
        accept_above=0.25, discard_below=-0.05, cosine=cosine, strict=strict, granularity=granularity, samples=4
    )
    assert Decision.PROJECT in seen


@pytest.mark.parametrize("projection", ["span", "sequential", "cone"])
@pytest.mark.parametrize("make_model", [network, convolutional])
def test_projections(projection, make_model):
    seen = side_by_side(make_model, accept_above=0.9, discard_below=-1, projection=projection, samples=200)
    assert Decision.PROJECT in seen


@pytest.mark.parametrize("eviction", ["balanced", "fifo", "reservoir"])
@pytest.mark.parametrize("capacity", [1, 4, 7])
def test_evictions(eviction, capacity):
    side_by_side(tasks=4, accept_above=0.6, discard_below=-0.6, eviction=eviction, capacity=capacity, samples=2, seed=5)


@pytest.mark.parametrize(
    ("storage", "rank", "memory_dtype"),
    [("dense", 1, "float32"), ("dense", 1, "bfloat16"), ("factored", 1, "float32"), ("factored", 2, "float32")],
)
@pytest.mark.parametrize("make_model", [network, convolutional])
def test_storages(storage, rank, memory_dtype, make_model):
    side_by_side(
        make_model,
        storage=storage,
        rank=rank,
        memory_dtype=memory_dtype,
        accept_above=0.8,
        discard_below=-0.8,
        samples=3,
        tolerance=2e-3,
    )


@pytest.mark.parametrize("momentum_form", ["ema", "heavy_ball"])
def test_momentum_and_decay(momentum_form):
    side_by_side(
        momentum=0.9,
        momentum_form=momentum_form,
        weight_decay=0.1,
        accept_above=0.5,
        discard_below=-0.2,
        tolerance=1e-3,
    )


@pytest.mark.parametrize("rules", [{"admit_below": 0.5}, {"admit_below": -0.1}, {"min_norm": 0.4}])
def test_admission(rules):
    side_by_side(accept_above=0.5, discard_below=-0.5, **rules)


def test_float64():
    def double() -> nn.Module:
        return network(dtype=torch.float64)

    model = double()
    optimizer = SFAO(layer_groups(model), lr=0.1, accept_above=1, discard_below=-1)
    for inputs, targets in task(0, dtype=torch.float64):
        model.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.remember()
    model.zero_grad()
    loss(model(task(1, dtype=torch.float64)[0][0]), task(1)[0][1]).backward()
    optimizer.step()
    assert model[0].weight.grad.dtype == torch.float64
    assert optimizer.risk() < 1e-13
