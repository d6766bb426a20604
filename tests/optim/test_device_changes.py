"""What may change between two steps on a device: options, memories, parameters, states."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision, Gate, layer_groups
from sfao.optim._host_path import HostPath
from tests.on_device import DEVICE, gated_on
from tests.optim.beside import PROJECT, Beside, assert_close, flat, made_up, remembering

pytestmark = pytest.mark.usefixtures("_on_device")

SAMPLING = {"accept_above": 0.6, "discard_below": 0.3, "samples": 2, "momentum": 0.9}


def small() -> nn.Module:
    return nn.ModuleDict({"a": nn.Linear(9, 6), "b": nn.Linear(6, 5, bias=False)})


@pytest.fixture
def beside() -> Beside:
    return remembering(small(), directions=3, **SAMPLING)


def go_on(beside: Beside, numbers=(200, 201)) -> None:
    for number in numbers:
        beside.step(made_up(beside.host_model, number % 2, number))
    assert beside.device.counts == beside.host.counts


def test_options_changed_midway_hold_from_the_next_step_on(beside):
    go_on(beside)
    for number, (above, below, expected) in enumerate([(-1, -1, Decision.ACCEPT), (1, 1, Decision.DISCARD)]):
        for optimizer in (beside.host, beside.device):
            for group in optimizer.param_groups:
                group.update(accept_above=above, discard_below=below)
        path = beside.device.gate._path
        assert set(beside.step(made_up(beside.host_model, 0, 300 + number)).values()) == {expected}
        assert beside.device.gate._path is path, "a schedule of thresholds must not cost new launches at every step"
    for optimizer in (beside.host, beside.device):
        for group in optimizer.param_groups:
            group.update(accept_above=1, discard_below=-1, samples=4, projection="sequential")
    go_on(beside)


def test_options_changed_and_looked_at_before_the_step_hold_too(beside):
    """Whoever checks the options first must not hide the change from the step."""
    go_on(beside)
    for optimizer in (beside.host, beside.device):
        for group in optimizer.param_groups:
            group.update(accept_above=1, discard_below=1)
        optimizer.param_groups[1]["samples"] = 0
    for optimizer in (beside.host, beside.device):
        with pytest.raises(ValueError, match="`samples` must be"):
            optimizer.step()
        optimizer.param_groups[1]["samples"] = 2
    assert set(beside.step(made_up(beside.host_model, 0, 300)).values()) == {Decision.DISCARD}


def test_remembering_midway(beside):
    go_on(beside)
    for number in range(4):
        beside.remember(made_up(beside.host_model, 2, number))
    beside.end_task()
    go_on(beside)


def test_consolidating_midway():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    batches = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(3)]
    beside = Beside(model, **PROJECT)
    go_on(beside)
    for optimizer, own, device in ((beside.host, model, "cpu"), (beside.device, beside.device_model, DEVICE)):
        moved = [(x.to(device), y.to(device)) for x, y in batches]
        assert optimizer.consolidate(own, moved, nn.CrossEntropyLoss()) == 6
    go_on(beside)
    assert beside.decided == {Decision.ACCEPT, Decision.PROJECT}


def add_a_group(beside: Beside) -> None:
    for optimizer, model in ((beside.host, beside.host_model), (beside.device, beside.device_model)):
        torch.manual_seed(1)
        model["c"] = nn.Linear(4, 3).to(model["a"].weight.device)
        optimizer.add_param_group({"params": list(model["c"].parameters()), "name": "c"})


def test_a_group_added_midway_is_gated_and_counted(beside):
    go_on(beside)
    add_a_group(beside)
    go_on(beside)
    assert beside.device.counts["c"]["accept"] == 2
    beside.remember(made_up(beside.host_model, 0, 20))
    go_on(beside)


def test_a_group_added_to_a_global_gate_midway():
    beside = remembering(small(), directions=3, granularity="global", **PROJECT)
    go_on(beside)
    add_a_group(beside)
    go_on(beside)


def test_a_parameter_that_is_frozen_and_thawed(beside):
    gradients = made_up(beside.host_model, 0, 200)
    beside.step([None, *gradients[1:]])
    beside.step(gradients)
    beside.step([gradients[0], None, None])
    assert beside.device.counts == beside.host.counts


def test_a_sparse_gradient_is_refused_as_ever(beside):
    go_on(beside)
    weight = beside.device_model["b"].weight
    weight.grad = torch.ones_like(weight).to_sparse()
    with pytest.raises(ValueError, match="layer 'b' must be dense"):
        beside.device.step()


def test_a_parameter_that_has_grown_is_refused_as_on_the_host(beside):
    go_on(beside)
    for optimizer, model in ((beside.host, beside.host_model), (beside.device, beside.device_model)):
        weight = model["b"].weight
        weight.grad = None
        weight.data = torch.ones(2 * len(weight), weight.shape[1], device=weight.device)
        weight.grad = torch.ones_like(weight)
        with pytest.raises(RuntimeError, match="shape"):
            optimizer.step()


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_the_defaults_of_torch_do_not_matter(storage):
    """A default device or dtype is about tensors of the user's; the gate says what its own are."""
    beside = remembering(small(), storage=storage, capacity=4, **SAMPLING)
    gradients = [made_up(beside.host_model, number % 2, number) for number in (200, 201)]
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            beside.remember(gradients[0])
            beside.device.step()
            beside.host.step()
            path = beside.device.gate._path
            states = [optimizer.state_dict()["gate"]["layers"]["a"] for optimizer in (beside.host, beside.device)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert states[0]["counts"] == states[1]["counts"]
    rooms = [room for launches in path.gate._launches for room in launches._scaled.values()]
    assert {room.dtype for room in rooms} <= {torch.float32}
    go_on(beside)


def test_a_saved_state_goes_on_alike(beside):
    go_on(beside)
    state = beside.device.state_dict()
    go_on(beside)
    counts = beside.device.counts

    other_model = copy.deepcopy(beside.device_model)
    other = SFAO(layer_groups(other_model), lr=9.0)
    other.load_state_dict(state)
    for number in (200, 201):
        _give(other_model, made_up(other_model, number % 2, number))
        other.step()
    assert other.counts == counts
    assert_close(other.last_cosines, beside.device.last_cosines)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_copy_goes_on_alike(beside, copied):
    go_on(beside)
    model, optimizer = copied((beside.device_model, beside.device))
    go_on(beside)
    for number in (200, 201):
        _give(model, made_up(model, number % 2, number))
        optimizer.step()
    assert optimizer.last_decisions == beside.device.last_decisions
    assert optimizer.counts == beside.device.counts
    assert torch.equal(flat(model.parameters()), flat(beside.device_model.parameters()))


def test_a_loaded_state_forgets_what_the_device_had_counted(beside):
    before = beside.device.counts
    state = beside.device.state_dict()
    go_on(beside)
    beside.device.load_state_dict(state)
    assert beside.device.counts == before
    assert beside.device.last_decisions == {}


def test_directions_that_were_replaced_are_not_kept_alive(beside):
    go_on(beside)
    directions = weakref.ref(beside.device.gate.layers[0].memory.blocks[0].tensors[0])
    for number in range(8):
        beside.remember(made_up(beside.host_model, 0, number))
    gc.collect()
    assert directions() is None


def test_a_discarded_layer_stands_still_before_another_optimizer():
    models, gates = [small(), small().to(DEVICE)], []
    models[1].load_state_dict(models[0].state_dict())
    for model, devices in zip(models, ((), (DEVICE.type,)), strict=True):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
        groups = layer_groups(model)
        groups[0].update(accept_above=1, discard_below=1)
        groups[1].update(accept_above=1, discard_below=-1)
        gate = Gate(groups).attach(optimizer)
        for number in range(3):
            _give(model, made_up(model, 0, number))
            gate.remember()
        before = flat(model["a"].parameters())
        with gated_on(*devices):
            for number in range(100, 102):
                _give(model, made_up(model, 0, number))
                optimizer.step()
        assert isinstance(gate._path, HostPath) == (not devices)
        assert torch.equal(flat(model["a"].parameters()), before)
        gates.append(gate)
    assert gates[0].counts == gates[1].counts
    assert torch.allclose(flat(models[0].parameters()), flat(models[1].parameters()), atol=1e-5)


def _give(model: nn.Module, gradients: list[torch.Tensor]) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.to(parameter.device)
