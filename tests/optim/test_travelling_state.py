"""The state of a gate inside its optimizer's: saved and loaded by whoever saves and loads the optimizer."""

import copy
import io

import pytest
import torch
from torch import nn

from sfao import SFAO, Gate, layer_groups
from tests.optim.problem import loss, network, task, train, weights

MAKERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}
MEMORIES = ["subspace", "directions", "both"]


def attach(make="adamw", memory="subspace", seed=0):
    model = network(seed)
    optimizer = MAKERS[make](model.parameters())
    return model, optimizer, Gate(layer_groups(model), memory=memory).attach(optimizer)


def learned(make="adamw", memory="subspace"):
    model, optimizer, gate = attach(make, memory)
    train(model, optimizer, task(0))
    gate.consolidate(model, task(0), loss)
    train(model, optimizer, task(1)[:3])
    return model, optimizer, gate


def save_and_load(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("weights_first", [True, False])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("make", MAKERS)
def test_a_run_that_is_resumed_goes_on_to_the_last_bit(make, memory, weights_first):
    model, optimizer, gate = learned(make, memory)
    saved = save_and_load({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, task(1)[3:])
    other, resumed, loaded = attach(make, memory, seed=1)
    if weights_first:
        other.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    other.load_state_dict(saved["model"])
    assert not loaded.is_empty
    train(other, resumed, task(1)[3:])
    assert torch.equal(weights(other), weights(model))
    assert loaded.counts == gate.counts


def test_without_a_gate_the_optimizer_loads_it_too():
    _, optimizer, _ = learned()
    alone = MAKERS["adamw"](network().parameters())
    alone.load_state_dict(optimizer.state_dict())
    assert "sfao_gate" not in alone.state_dict()


def test_a_state_without_a_memory_is_loaded_while_there_is_nothing_to_lose():
    model, optimizer, gate = learned()
    plain = MAKERS["adamw"](model.parameters()).state_dict()
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(RuntimeError, match="`state_dict` must hold the memory of the gate, under 'sfao_gate'"):
        optimizer.load_state_dict(plain)
    assert torch.equal(before["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    _, fresh, empty = attach()
    fresh.load_state_dict(plain)
    assert empty.is_empty
    gate.detach()
    optimizer.load_state_dict(plain)
    assert not gate.is_empty


def test_a_state_of_another_model_changes_nothing():
    _, optimizer, _ = learned()
    wide = nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 3))
    other = MAKERS["adamw"](wide.parameters())
    gate = Gate(layer_groups(wide)).attach(other)
    with pytest.raises(RuntimeError, match="must have parameters of shapes"):
        other.load_state_dict(optimizer.state_dict())
    assert gate.is_empty
    assert not other.state


def test_a_gate_goes_on_to_the_next_optimizer():
    model, optimizer, gate = learned()
    second = MAKERS["momentum"](model.parameters())
    with pytest.raises(ValueError, match="detach"):
        gate.attach(second)
    gate.detach()
    assert "sfao_gate" not in optimizer.state_dict()
    gate.attach(second)
    assert "sfao_gate" in second.state_dict()
    del second
    third = MAKERS["momentum"](model.parameters())
    gate.attach(third)  # the one before is gone
    train(model, third, task(1))
    assert gate.drifts


def test_two_gates_on_one_optimizer_are_refused():
    model, optimizer, _ = attach()
    with pytest.raises(ValueError, match="`optimizer` must have one gate at most, but this AdamW has one"):
        Gate(layer_groups(model)).attach(optimizer)
    with pytest.raises(ValueError, match="`optimizer` must have one gate at most, but this SFAO has one"):
        Gate(layer_groups(model)).attach(SFAO(layer_groups(model)))


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_memory_of_other_weights_is_noticed_before_a_step(memory):
    _, optimizer, _ = learned(memory=memory)
    other, resumed, gate = attach(memory=memory, seed=1)
    resumed.load_state_dict(optimizer.state_dict())
    before = weights(other)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"must be of these weights, but those of layer '0' are \d+% away"):
            train(other, resumed, task(1)[:1])
    assert torch.equal(weights(other), before)
    gate.trust_memory()
    train(other, resumed, task(1)[:1])
    assert not torch.equal(weights(other), before)


def test_an_adapter_that_begins_anew_is_another():
    """Merged and replaced by one of the same shapes, as peft does: the old memory is not its own."""
    model, optimizer, _ = learned()
    saved = save_and_load(optimizer.state_dict()["sfao_gate"])
    nn.init.kaiming_uniform_(model[0].weight, a=5**0.5)
    nn.init.zeros_(model[2].weight)
    fresh = MAKERS["adamw"](model.parameters())
    Gate(layer_groups(model)).attach(fresh).load_state_dict(saved)
    with pytest.raises(RuntimeError, match="must be of these weights"):
        train(model, fresh, task(1)[:1])


def test_weights_that_have_moved_a_little_are_the_same():
    model, optimizer, _ = learned()
    saved = copy.deepcopy(optimizer.state_dict())
    train(model, optimizer, task(1), epochs=2)
    optimizer.load_state_dict(saved)
    train(model, optimizer, task(1))


def test_a_copy_of_an_attached_gate_says_that_it_gates_nothing():
    model = network()
    adam = torch.optim.AdamW(model.parameters())
    gate = Gate(layer_groups(model)).attach(adam)
    gate.consolidate(model, task(0), loss)
    other, other_adam, other_gate = copy.deepcopy((model, adam, gate))
    with pytest.raises(RuntimeError, match=r"attach\(\) it to the copy"):
        other_gate.consolidate(other, task(1), loss)
    other_gate.attach(other_adam).consolidate(other, task(1), loss)
    assert other_gate.task == 2
    other, alone = copy.deepcopy((model, gate))
    alone.detach()
    alone.consolidate(other, task(1), loss)
    gate.consolidate(model, task(1), loss)
