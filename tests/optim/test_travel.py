"""How far layers have come since they were consolidated: the sum of the lengths of their steps."""

import copy

import pytest
import torch

from sfao import SFAO, Gate, layer_groups
from tests.optim.test_subspace import LOSS, learn, mlp, task

OPTIMIZERS = {
    "plain": lambda model: SFAO(layer_groups(model), lr=0.1),
    "momentum": lambda model: SFAO(layer_groups(model), lr=0.05, momentum=0.9),
    "average": lambda model: SFAO(layer_groups(model), lr=0.05, momentum=0.9, momentum_form="ema"),
    "rates": lambda model: SFAO(
        [{**group, "lr": 0.02 * (1 + number)} for number, group in enumerate(layer_groups(model))], lr=0.1
    ),
    "tensor": lambda model: SFAO(layer_groups(model), lr=torch.tensor(0.1)),
}


def read(model):
    return [
        torch.cat([p.detach().flatten().double() for p in (layer.weight, layer.bias)]) for layer in (model[0], model[2])
    ]


def walk(model, optimizer, batches, apart):
    """Train, and add up how far each layer has gone."""
    for inputs, targets in batches:
        before = read(model)
        optimizer.zero_grad()
        LOSS(model(inputs), targets).backward()
        optimizer.step()
        for number, (old, new) in enumerate(zip(before, read(model), strict=True)):
            apart[number] += float((new - old).norm())


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_path_is_the_length_of_all_steps(make):
    model = mlp()
    optimizer = make(model)
    learn(model, optimizer, [0])
    sizes, apart = [float(layer.norm()) for layer in read(model)], [0.0, 0.0]
    walk(model, optimizer, task(1), apart)
    expected = [way / size for way, size in zip(apart, sizes, strict=True)]
    assert list(optimizer.gate.paths.values()) == pytest.approx(expected, rel=1e-4)


def test_a_path_behind_a_gate_is_that_of_the_optimizers_updates():
    model = mlp()
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    gate = Gate(layer_groups(model)).attach(adam)
    gate.consolidate(model, task(0))
    sizes, apart = [float(layer.norm()) for layer in read(model)], [0.0, 0.0]
    walk(model, adam, task(1), apart)
    expected = [way / size for way, size in zip(apart, sizes, strict=True)]
    assert list(gate.paths.values()) == pytest.approx(expected, rel=1e-3)


def test_a_task_is_as_long_as_the_last_one_until_it_is_longer():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    learn(model, optimizer, [0, 1])
    before = [layer.travel.before for layer in optimizer.gate.layers]
    assert all(way > 0 for way in before)
    assert set(optimizer.gate.paths.values()) == {0.0}
    walk(model, optimizer, task(2)[:1], [0.0, 0.0])
    drifts, kept = optimizer.drifts, optimizer.kept()
    for layer, way in zip(optimizer.gate.layers, before, strict=True):
        share = 0.6 ** (2**0.5 * (0.5 + 0.8 * way**0.25 + (drifts[layer.name] / 0.15) ** 3))
        assert kept[layer.name] == pytest.approx(share, rel=1e-2)


@pytest.mark.parametrize("make", [OPTIMIZERS["plain"], OPTIMIZERS["momentum"]], ids=["plain", "momentum"])
def test_a_loaded_state_goes_on_to_the_last_bit(make):
    model = mlp()
    optimizer = make(model)
    learn(model, optimizer, [0, 1])
    walk(model, optimizer, task(2)[:3], [0.0, 0.0])
    twin = copy.deepcopy(model)
    other = make(twin)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, its in ((model, optimizer), (twin, other)):
        walk(one, its, task(2)[3:], [0.0, 0.0])
    assert optimizer.gate.paths == other.gate.paths
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_options_that_change_on_the_way_do_not_start_it_anew():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    learn(model, optimizer, [0])
    walk(model, optimizer, task(1)[:3], [0.0, 0.0])
    before = optimizer.gate.paths
    for group in optimizer.param_groups:
        group["keep"] = 0.5
    walk(model, optimizer, task(1)[3:4], [0.0, 0.0])
    assert all(optimizer.gate.paths[name] > before[name] > 0 for name in before)


def test_a_state_from_before_there_were_travels_loads():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    learn(model, optimizer, [0])
    state = optimizer.state_dict()
    for layer in state["gate"]["layers"].values():
        del layer["travel"], layer["seals"]
    optimizer.load_state_dict(state)
    walk(model, optimizer, task(1), [0.0, 0.0])
    assert all(way > 0 for way in optimizer.gate.paths.values())
    state["gate"]["layers"]["0"]["travel"] = {"path": float("nan"), "before": 0.0, "size": None}
    with pytest.raises(RuntimeError, match="finite"):
        optimizer.load_state_dict(state)


def test_a_layer_without_a_gradient_does_not_move_on_by_its_old_momentum():
    model = mlp()
    optimizer = OPTIMIZERS["momentum"](model)
    learn(model, optimizer, [0])
    walk(model, optimizer, task(1)[:2], [0.0, 0.0])
    before = optimizer.gate.paths
    model[0].requires_grad_(False)
    walk(model, optimizer, task(1)[2:], [0.0, 0.0])
    assert optimizer.gate.paths["0"] == before["0"]
    assert optimizer.gate.paths["2"] > before["2"]
