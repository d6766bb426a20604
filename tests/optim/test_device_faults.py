"""Gradients that are not finite, where nothing waits for what the device found."""

import copy
import pickle

import pytest
import torch

from sfao import Gate, layer_groups
from sfao.optim import _device_path as device_path
from sfao.optim._gate_path import NonFiniteGradient
from tests.on_device import DEVICE
from tests.optim.beside import PROJECT, Beside, Layers, flat, made_up, remembering

pytestmark = pytest.mark.usefixtures("_on_device")


def broken(model, layer: int, value: float) -> list[torch.Tensor]:
    gradients = made_up(model, 0, 77)
    gradients[layer].view(-1)[-1] = value
    return gradients


def bookkeeping(beside: Beside):
    buffers = [state["momentum_buffer"].clone() for state in beside.device.state.values()]
    return flat(beside.device_model.parameters()), buffers, beside.device.counts


def partly_remembering(**options) -> Beside:
    """All but the last two layers have a memory."""
    beside = Beside(Layers(), **PROJECT, **options)
    for number in range(3):
        gradients = made_up(beside.host_model, 0, number)
        beside.remember([*gradients[:-4], None, None, None, None])
    return beside


@pytest.mark.parametrize(("place", "name"), [(0, "linear"), (3, "conv"), (-1, "one_column")])
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_the_whole_step_changes_nothing_and_the_next_look_names_the_layer(place, name, value):
    beside = partly_remembering(momentum=0.9, weight_decay=0.1)
    beside.step(made_up(beside.host_model, 0, 50))
    parameters, buffers, counts = bookkeeping(beside)
    beside.give(broken(beside.host_model, place, value))
    beside.device.step()
    with pytest.raises(NonFiniteGradient, match=f"layer '{name}' must be finite, but was not; that step changed"):
        beside.device.last_decisions  # noqa: B018
    now, buffers_now, counts_now = bookkeeping(beside)
    assert torch.equal(now, parameters)
    assert all(torch.equal(one, two) for one, two in zip(buffers_now, buffers, strict=True))
    assert counts_now == counts
    assert not flat(beside.device_model.parameters(), grad=True).any()
    beside.step(made_up(beside.host_model, 0, 51))


LOOKS = {
    "last_decisions": lambda optimizer: optimizer.last_decisions,
    "last_cosines": lambda optimizer: optimizer.last_cosines,
    "counts": lambda optimizer: optimizer.counts,
    "state_dict": lambda optimizer: optimizer.state_dict(),
    "kept": lambda optimizer: optimizer.kept(),
    "risk": lambda optimizer: optimizer.risk(),
    "remember": lambda optimizer: optimizer.remember(),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("look", LOOKS)
def test_it_is_raised_once_by_whatever_looks_first(look):
    beside = remembering(torch.nn.Linear(5, 4), directions=2, tasks=1, **PROJECT)
    before = flat(beside.device_model.parameters())
    beside.give(broken(beside.host_model, 0, float("nan")))
    beside.device.step()
    with pytest.raises(NonFiniteGradient, match="root"):
        LOOKS[look](beside.device)
    LOOKS[look](beside.device)
    assert beside.device.last_decisions == {}
    assert torch.equal(flat(beside.device_model.parameters()), before)
    assert beside.device.counts == beside.host.counts


def test_without_anyone_looking_it_is_raised_some_steps_later(monkeypatch):
    monkeypatch.setattr(device_path, "LOOK_EVERY", 3)
    beside = remembering(torch.nn.Linear(5, 4), directions=2, tasks=1, **PROJECT)
    beside.give(broken(beside.host_model, 1, float("inf")))
    beside.device.step()
    for number in range(3):
        beside.give(made_up(beside.host_model, 0, 100 + number))
        beside.device.step()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    before = flat(beside.device_model.parameters())
    with pytest.raises(NonFiniteGradient, match="root"):
        beside.device.step()
    # The step that raised had not begun: it is neither taken nor counted.
    assert torch.equal(flat(beside.device_model.parameters()), before)
    assert beside.device.counts["(root)"]["project"] == 3
    beside.device.step()
    assert beside.device.counts["(root)"]["project"] == 4


def test_consolidating_raises_before_it_stores():
    beside = remembering(torch.nn.Linear(5, 4), directions=2, tasks=1, **PROJECT)
    beside.give(broken(beside.host_model, 1, float("nan")))
    beside.device.step()
    batches = [(torch.randn(3, 5, device=DEVICE), torch.tensor([0, 1, 3], device=DEVICE))]
    with pytest.raises(NonFiniteGradient, match="root"):
        beside.device.consolidate(beside.device_model, batches, torch.nn.CrossEntropyLoss())
    assert beside.device.gate.task == 1
    assert beside.device.consolidate(beside.device_model, batches, torch.nn.CrossEntropyLoss()) == 1


def test_a_gate_before_another_optimizer_raises_at_once():
    model = torch.nn.Linear(5, 4).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    gate = Gate(layer_groups(model), **PROJECT).attach(optimizer)
    before = flat(model.parameters())
    model.weight.grad, model.bias.grad = torch.full_like(model.weight, torch.nan), torch.ones_like(model.bias)
    with pytest.raises(NonFiniteGradient, match="root"):
        optimizer.step()
    assert torch.equal(flat(model.parameters()), before)
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    assert gate.counts["(root)"] == {"accept": 1, "project": 0, "discard": 0, "zero": 0}
    assert not torch.equal(flat(model.parameters()), before)
