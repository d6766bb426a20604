"""Models that change under an optimizer: parameters that leave or come, heads that grow, names that wrappers change."""

import copy

import pytest
import torch
from torch import nn

from sfao import SFAO, Gate, layer_groups
from tests.optim.problem import loss, network, task, train, trained, weights


def grow(model: nn.Sequential, rows: int = 5) -> nn.Linear:
    """Replace the head by one with more rows, the old ones copied, as Avalanche's IncrementalClassifier does."""
    old, new = model[2], nn.Linear(8, rows)
    with torch.no_grad():
        new.weight[:3], new.bias[:3] = old.weight, old.bias
    model[2] = new
    return new


def exchange(optimizer: torch.optim.Optimizer, model: nn.Sequential, before: list[nn.Parameter]) -> None:
    """Put the model's parameters into the optimizer's groups, in the place of those before."""
    now = dict(zip(map(id, before), model.parameters(), strict=True))
    for group in optimizer.param_groups:
        group["params"] = [now[id(parameter)] for parameter in group["params"]]


@pytest.mark.parametrize("memory", ["subspace", "directions", "both"])
def test_a_head_that_grows_is_followed(memory):
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, momentum=0.9, memory=memory), 1)
    train(model, optimizer, task(1)[:2])
    momentum = optimizer.state[model[2].weight]["momentum_buffer"].clone()
    before = list(model.parameters())
    held = copy.deepcopy(optimizer.state_dict()["gate"]["layers"]["2"]["memory"]["blocks"])
    grow(model)
    exchange(optimizer, model, before)
    were = weights(model)
    with pytest.raises(RuntimeError, match=r"layer '2' must stay in the optimizer.*\(3, 8\) has left.*rebind\(model\)"):
        train(model, optimizer, task(1)[:1])
    assert torch.equal(weights(model), were)
    assert optimizer.rebind(model) == ["2"]
    assert optimizer.rebind(model) == []
    assert torch.equal(optimizer.state[model[2].weight]["momentum_buffer"][:3], momentum)
    train(model, optimizer, task(1)[2:])
    assert set(optimizer.last_decisions) == {"0", "2"}
    for old, new in zip(held, optimizer.state_dict()["gate"]["layers"]["2"]["memory"]["blocks"], strict=True):
        for tensor, grown in zip(old["tensors"], new["tensors"], strict=True):
            assert torch.equal(grown[:, : tensor.shape[1]], tensor)
            assert not grown[:, tensor.shape[1] :].any()
    optimizer.consolidate(model, task(1), loss)
    fresh = SFAO(layer_groups(model), lr=0.1, memory=memory)
    fresh.load_state_dict(optimizer.state_dict())


def test_directions_leave_new_rows_free():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, accept_above=1.0, discard_below=-1.0), 1)
    grow(model)
    optimizer.rebind(model)
    loss(model(task(1)[0][0]), task(1)[0][1] + 2).backward()
    before = model[2].weight.grad.clone()
    optimizer.step()
    after = model[2].weight.grad
    assert torch.allclose(after[3:], before[3:], atol=1e-6)
    assert not torch.allclose(after[:3], before[:3], atol=1e-4)


def test_a_gate_follows_what_its_optimizer_knows():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    gate = Gate(layer_groups(model)).attach(optimizer)
    train(model, optimizer, task(0))
    gate.consolidate(model, task(0))
    before = list(model.parameters())
    grow(model)
    with pytest.raises(ValueError, match="`optimizer` must optimize all gated parameters, but not those of '2'"):
        gate.rebind(model)
    exchange(optimizer, model, before)
    with pytest.raises(RuntimeError, match="layer '2' must stay in the optimizer"):
        train(model, optimizer, task(1)[:1])
    assert gate.rebind(model) == ["2"]
    train(model, optimizer, task(1))
    assert set(gate.drifts) == {"0", "2"}


def test_a_head_that_is_added_must_be_gated_or_left_free_on_purpose():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(layer_groups(model[0])).attach(optimizer)
    train(model, optimizer, task(0))  # the head was ungated from the start
    model.append(nn.Linear(3, 3))
    optimizer.add_param_group({"params": model[3].parameters()})
    with pytest.raises(RuntimeError, match=r"a parameter of shape \(3, 3\) came into the optimizer.*rebind\(model\)"):
        train(model, optimizer, task(1)[:1])
    gate.detach()
    gate.attach(optimizer)
    train(model, optimizer, task(1)[:1])
    assert [layer.name for layer in gate.layers] == ["(root)"]


def test_rebinding_brings_in_what_the_optimizer_was_given():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(layer_groups(model)).attach(optimizer)
    model.append(nn.Linear(3, 3))
    optimizer.add_param_group({"params": model[3].parameters()})
    assert gate.rebind(model) == ["3"]
    train(model, optimizer, task(0))
    assert [layer.name for layer in gate.layers] == ["0", "2", "3"]


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (lambda m: m.__setitem__(2, nn.Linear(9, 3)), r"layer '2' may have grown by rows alone, got shapes \[\(3, 9\)"),
        (lambda m: m.__setitem__(2, nn.Linear(8, 2)), r"layer '2' may have grown by rows alone, got shapes \[\(2, 8\)"),
        (lambda m: m.__setitem__(2, nn.Linear(8, 3, False)), "layer '2' may have grown by rows alone"),
        (lambda m: m.__setitem__(2, nn.Tanh()), "`model` must hold the gated layers, .* but has no layer '2'"),
    ],
)
def test_other_changes_are_refused_by_name(replace, message):
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1), 1)
    old = list(model.parameters())
    replace(model)
    with pytest.raises(ValueError, match=message):
        optimizer.rebind(model)
    assert all(
        a is b for a, b in zip(old, (p for layer in optimizer.gate.layers for p in layer.parameters), strict=True)
    )


# -- Names -----------------------------------------------------------------------------------------------------------


def test_frozen_parameters_are_left_out_unless_asked_for():
    model = network()
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    assert [(group["name"], len(group["params"])) for group in layer_groups(model)] == [("2", 1)]
    every = layer_groups(model, trainable_only=False)
    assert [(group["name"], len(group["params"])) for group in every] == [("0", 2), ("2", 2)]


def test_names_are_those_of_the_bare_model():
    model = nn.Sequential()
    model.module = network()  # a name of its own
    names = [group["name"] for group in layer_groups(model)]
    assert names == ["module.0", "module.2"]
    wrapped = torch.compile(nn.DataParallel(model), backend="eager")
    assert [group["name"] for group in layer_groups(wrapped)] == names


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module.", "_fsdp_wrapped_module.", "module._orig_mod."])
def test_states_with_the_names_of_wrappers_load(prefix):
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1), 1)
    state = copy.deepcopy(optimizer.state_dict())
    state["gate"]["layers"] = {prefix + name: saved for name, saved in state["gate"]["layers"].items()}
    for group in state["param_groups"]:
        group["name"] = prefix + group["name"]
    loaded = SFAO(layer_groups(model), lr=0.1)
    loaded.load_state_dict(state)
    assert [group["name"] for group in loaded.param_groups] == ["0", "2"]
    assert loaded.memory_bytes == optimizer.memory_bytes > 0


# -- Watching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["subspace", "directions", "both"])
def test_telemetry_is_flat_and_never_raises(memory):
    model = network()
    optimizer = SFAO(layer_groups(model), lr=0.1, memory=memory)
    assert optimizer.telemetry()["memory_bytes"] == 0
    trained(model, optimizer, 2)
    train(model, optimizer, task(2))
    optimizer.zero_grad()
    values = optimizer.telemetry()
    assert all(type(value) is float for value in values.values())
    assert values["tasks"] == 2
    assert values["memory_bytes"] == optimizer.memory_bytes
    counts = optimizer.counts
    for name in ("accept", "project", "discard", "zero"):
        assert values[name] == sum(of_layer[name] for of_layer in counts.values())
        assert values[f"layers/0/{name}"] == counts["0"][name]
    if memory != "directions":
        assert values["layers/2/drift"] == optimizer.drifts["2"]
        assert values["layers/2/kept"] == optimizer.kept()["2"]
        assert values["drift"] == max(optimizer.drifts.values())
    if memory != "subspace":
        assert values["layers/0/cosine"] == optimizer.last_cosines["0"]


def test_hooks_are_called_after_a_consolidation_that_succeeded():
    model = network()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    seen = []
    handle = optimizer.register_consolidate_hook(lambda gate: seen.append(gate.task))
    optimizer.consolidate(model, task(0))
    with pytest.raises(ValueError, match="at least one batch"):
        optimizer.consolidate(model, [])
    assert seen == [1]
    handle.remove()
    optimizer.consolidate(model, task(1))
    assert seen == [1]
    copy.deepcopy(optimizer)
