"""Saving, loading, copying, pickling; adding groups on the way."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from sfao import SFAO, Gate, layer_groups
from tests.optim.problem import loss, network, task, train, trained, weights

LIVELY = {"lr": 0.1, "momentum": 0.9, "accept_above": 0.3, "discard_below": -0.05, "samples": 2, "capacity": 8}


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def go_on(model, optimizer):
    train(model, optimizer, task(7))
    optimizer.consolidate(model, task(7), loss)
    train(model, optimizer, task(8), epochs=2)
    return weights(model), optimizer.counts, optimizer.memory_bytes


@pytest.mark.parametrize("storage", ["dense", "factored"])
@pytest.mark.parametrize("granularity", ["layer", "global"])
@pytest.mark.parametrize("eviction", ["balanced", "reservoir", "fifo"])
def test_a_round_trip_continues_bit_for_bit(storage, granularity, eviction):
    options = {**LIVELY, "storage": storage, "granularity": granularity, "eviction": eviction}
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", **options))
    train(model, optimizer, task(2))  # stop in the middle of a task, momentum and all
    saved_model, saved = through_a_file(model.state_dict()), through_a_file(optimizer.state_dict())

    other_model = network(seed=1)
    other_model.load_state_dict(saved_model)
    other = SFAO(layer_groups(other_model), memory="directions", lr=9.0, granularity=granularity)
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.1
    (one, counts, size), (two, other_counts, other_size) = go_on(model, optimizer), go_on(other_model, other)
    assert torch.equal(one, two)
    assert counts == other_counts
    assert size == other_size
    assert any(c["project"] for c in counts.values())


def test_options_of_a_loaded_group_stay_live():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", **LIVELY))
    optimizer.load_state_dict(optimizer.state_dict())
    for group in optimizer.param_groups:
        group.update(accept_above=1, discard_below=1)
    train(model, optimizer, task(3))
    assert {str(d) for d in optimizer.last_decisions.values()} == {"discard"}


@pytest.mark.parametrize("memory_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model_dtype", [torch.float32, torch.bfloat16])
def test_the_memory_keeps_its_own_dtype(memory_dtype, model_dtype):
    model = network(dtype=model_dtype)
    optimizer = SFAO(layer_groups(model), memory="directions", **LIVELY, memory_dtype=memory_dtype)
    train(model, optimizer, task(0, dtype=model_dtype))
    optimizer.consolidate(model, task(0, dtype=model_dtype), loss)
    optimizer.load_state_dict(through_a_file(optimizer.state_dict()))
    tensors = optimizer.state_dict()["gate"]["layers"]["0"]["memory"]["blocks"][0]["tensors"]
    assert {str(t.dtype) for t in tensors} == {f"torch.{memory_dtype}"}
    train(model, optimizer, task(1, dtype=model_dtype))
    assert torch.isfinite(weights(model)).all()


def test_copies_and_pickles_go_on_like_the_original():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", **LIVELY))
    copies = [copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))]
    expected = go_on(model, optimizer)[0]
    for other_model, other in copies:
        assert torch.equal(go_on(other_model, other)[0], expected)


def test_a_state_dict_is_a_snapshot():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", **LIVELY), tasks=1)
    state = optimizer.state_dict()
    before = copy.deepcopy(state["gate"])
    trained(model, optimizer, tasks=2)
    for name in before["layers"]:
        then, now = (g["layers"][name]["memory"]["blocks"][0]["tensors"] for g in (before, state["gate"]))
        assert all(torch.equal(a, b) for a, b in zip(then, now, strict=True))


def test_a_group_added_midway_gets_a_memory_of_its_own():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", **LIVELY), tasks=1)
    held = optimizer.memory_bytes
    head = nn.Linear(8, 5)
    optimizer.add_param_group({"params": head.parameters(), "name": "new head"})
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    assert optimizer.memory_bytes == held
    body = model[:2]
    for inputs, targets in task(1):
        optimizer.zero_grad()
        loss(head(body(inputs)), targets).backward()
        optimizer.step()
    assert set(optimizer.last_decisions) == {"0", "new head"}
    optimizer.consolidate(nn.Sequential(body, head), task(1), loss)
    assert optimizer.memory_bytes > held
    assert optimizer.counts["new head"]["accept"] == 6
    optimizer.load_state_dict(through_a_file(optimizer.state_dict()))


def test_a_group_added_midway_joins_the_global_gate():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", **LIVELY, granularity="global"), tasks=1)
    head = nn.Linear(8, 5)
    optimizer.add_param_group({"params": head.parameters()})
    both = nn.Sequential(model[:2], head)
    train(both, optimizer, task(1))
    optimizer.consolidate(both, task(1), loss)
    train(both, optimizer, task(2))
    assert list(optimizer.last_decisions) == ["model"]


def other_models():
    wider = nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 3))
    longer = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3), nn.Linear(3, 3))
    renamed = nn.ModuleDict({"a": nn.Linear(12, 8), "b": nn.Linear(8, 3)})
    return {"wider": wider, "longer": longer, "renamed": renamed}


@pytest.mark.parametrize("name", other_models())
def test_the_state_of_another_model_is_refused_and_changes_nothing(name):
    other_model = other_models()[name]
    other = SFAO(layer_groups(other_model), memory="directions", lr=0.5)
    for parameter in other_model.parameters():
        parameter.grad = torch.ones_like(parameter)
    other.remember()
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", **LIVELY))
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(RuntimeError, match="`state_dict` must"):
        optimizer.load_state_dict(other.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.1
    same(before, optimizer.state_dict())


@pytest.mark.parametrize(
    "damage",
    [
        "sgd",
        "nothing",
        "no gate",
        "no memory",
        "short",
        "granularity",
        "no task",
        "counts",
        "tasks",
        "kind",
        "bad",
        "momentum",
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", **LIVELY))
    state = copy.deepcopy(optimizer.state_dict())
    if damage == "sgd":
        state = torch.optim.SGD(model.parameters(), lr=0.1).state_dict()
    elif damage == "no gate":
        state["gate"] = None
    elif damage == "no memory":
        del state["gate"]["layers"]["0"]["memory"]
    elif damage == "nothing":
        state = None
    elif damage == "no task":
        del state["gate"]["task"]
    elif damage == "counts":
        del state["gate"]["layers"]["2"]["counts"]
    elif damage == "tasks":
        state["gate"]["layers"]["0"]["memory"]["tasks"].pop()
    elif damage == "kind":
        state["gate"]["layers"]["0"]["memory"]["blocks"][0]["kind"] = "foo"
    elif damage == "bad":
        state["param_groups"][0]["accept_above"] = 7
    elif damage == "momentum":
        state["state"] = {0: {"momentum_buffer": torch.zeros(2)}}
    elif damage == "granularity":
        state["gate"]["granularity"] = "global"
    else:
        tensors = state["gate"]["layers"]["2"]["memory"]["blocks"][0]["tensors"]
        tensors[0] = tensors[0][:, :-1]
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(RuntimeError, match="`state_dict` must") as caught:
        optimizer.load_state_dict(state)
    assert len(str(caught.value).splitlines()) <= 2
    same(before, optimizer.state_dict())


def test_a_gate_has_a_state_of_its_own():
    model, other_model = network(), network()
    gates = [
        Gate(layer_groups(m), memory="directions", **{k: LIVELY[k] for k in ("accept_above", "samples", "capacity")})
        for m in (model, other_model)
    ]
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, other_model)]
    gates[0].attach(optimizers[0])
    train(model, optimizers[0], task(0))
    gates[0].consolidate(model, task(0), loss)
    other_model.load_state_dict(model.state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    gates[1].load_state_dict(through_a_file(gates[0].state_dict()))
    gates[1].attach(optimizers[1])
    for m, o in zip((model, other_model), optimizers, strict=True):
        train(m, o, task(1))
    assert torch.equal(weights(model), weights(other_model))
    assert gates[0].counts == gates[1].counts


def same(one, two):
    """Assert that two nested states are equal, tensors bit for bit."""
    assert type(one) is type(two)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two)
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            same(one[key], two[key])
    elif isinstance(one, list):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            same(a, b)
    else:
        assert one == two
