"""The state of the memory of input spaces: saved, loaded, copied, and untouched by what fails."""

import copy
import io

import pytest
import torch

from sfao import SFAO, layer_groups
from tests.optim.test_subspace import learn, mlp, task, train


@pytest.mark.parametrize("granularity", ["layer", "global"])
def test_a_state_goes_on_to_the_bit(granularity):
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.05, momentum=0.9, granularity=granularity)
    learn(model, optimizer, [1, 2])
    train(model, optimizer, task(3)[:2])
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other_model = mlp()
    other_model.load_state_dict(saved["model"])
    other = SFAO(layer_groups(other_model), lr=1.0, granularity=granularity)
    other.load_state_dict(saved["optimizer"])
    assert other.memory_bytes == optimizer.memory_bytes
    twin_model, twin = copy.deepcopy((model, optimizer))
    for run in ((model, optimizer), (other_model, other), (twin_model, twin)):
        train(*run, task(3)[2:])
        run[1].consolidate(run[0], task(3))
        train(*run, task(4))
    for a, b, c in zip(model.parameters(), other_model.parameters(), twin_model.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    assert optimizer.counts == other.counts == twin.counts


def test_a_damaged_state_is_refused_and_nothing_changes():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.05)
    learn(model, optimizer, [1])
    state = copy.deepcopy(optimizer.state_dict())
    state["gate"]["layers"]["0"]["spaces"][0]["axes"] = torch.zeros(3, 5)
    with pytest.raises(RuntimeError, match="an input space of shapes"):
        SFAO(layer_groups(mlp())).load_state_dict(state)
    state = copy.deepcopy(optimizer.state_dict())
    state["gate"]["layers"]["0"]["spaces"][0]["moments"][0] = float("nan")
    fresh = SFAO(layer_groups(mlp()))
    with pytest.raises(RuntimeError, match="not finite"):
        fresh.load_state_dict(state)
    assert fresh.memory_bytes == 0


def test_inputs_that_are_not_finite_are_refused_and_nothing_changes():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.05)
    learn(model, optimizer, [1])
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match="the inputs of layer '0' must be finite"):
        optimizer.consolidate(model, [(torch.full((4, 12), float("nan")), torch.zeros(4).long())])
    after = optimizer.state_dict()
    assert str(before) == str(after)


def test_a_gradient_that_is_not_finite_changes_nothing():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.05)
    learn(model, optimizer, [1])
    before = [parameter.clone() for parameter in model.parameters()]
    train_one = [(torch.full((4, 12), float("inf")), torch.zeros(4).long())]
    with pytest.raises(ValueError, match="must be finite"):
        train(model, optimizer, train_one)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
