"""Models that change under an optimizer: modules that are replaced, parameters that leave or come, heads that grow."""

import pytest
import torch
from torch import nn

from sfao.gate import Gate
from sfao.optimizer import SFAO
from tests.problem import PROJECT, loss, make_trained, network, task, train, weights


def grow(model, rows=5):
    """Replace the head by one with more rows, the old ones copied."""
    old, new = model[2], nn.Linear(8, rows)
    with torch.no_grad():
        new.weight[:3], new.bias[:3] = old.weight, old.bias
    model[2] = new


def exchange(optimizer, model, before):
    """Put the model's parameters into the optimizer's groups, in the place of those before."""
    now = dict(zip(map(id, before), model.parameters(), strict=True))
    for group in optimizer.param_groups:
        group["params"] = [now[id(parameter)] for parameter in group["params"]]


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_a_head_that_grows_is_followed(storage):
    model, optimizer = make_trained(1, **PROJECT, momentum=0.9, storage=storage)
    train(model, optimizer, task(1)[:2])
    momentum = optimizer.state[model[2].weight]["momentum_buffer"].clone()
    grow(model)
    before = weights(model)
    with pytest.raises(
        RuntimeError, match=r"layer '2' must stay in the model, but were replaced; call rebind\(model\)"
    ):
        train(model, optimizer, task(1)[:1])
    assert torch.equal(weights(model), before)
    with pytest.raises(RuntimeError, match=r"rebind\(model\)"):
        optimizer.consolidate(task(1), loss)
    assert optimizer.rebind(model) == ["2"]
    assert optimizer.rebind(model) == []
    assert torch.equal(optimizer.state[model[2].weight]["momentum_buffer"][:3], momentum)
    optimizer.zero_grad()
    loss(model(task(1)[0][0]), task(1)[0][1] + 2).backward()
    gradient = model[2].weight.grad.clone()
    optimizer.step()
    assert torch.allclose(model[2].weight.grad[3:], gradient[3:], atol=1e-6)  # new rows are free
    assert not torch.allclose(model[2].weight.grad[:3], gradient[:3], atol=1e-4)
    optimizer.consolidate(task(1), loss)
    SFAO(model, storage=storage).load_state_dict(optimizer.state_dict())


def test_parameters_that_left_the_optimizer_are_noticed():
    model, optimizer = make_trained(1)
    before = list(model.parameters())
    grow(model)
    exchange(optimizer, model, before)
    with pytest.raises(RuntimeError, match=r"layer '2' must stay in the model, but were replaced; call rebind"):
        train(model, optimizer, task(1)[:1])


def test_a_gate_follows_what_its_optimizer_knows():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    gate = Gate(model, **PROJECT).attach(optimizer)
    train(model, optimizer, task(0))
    gate.consolidate(task(0), loss)
    before = list(model.parameters())
    grow(model)
    with pytest.raises(ValueError, match="`optimizer` must optimize all gated parameters, but not those of '2'"):
        gate.rebind(model)
    exchange(optimizer, model, before)
    assert gate.rebind(model) == ["2"]
    train(model, optimizer, task(1))
    assert set(gate.last_decisions) == {"0", "2"}


def test_rebinding_brings_in_what_the_optimizer_was_given():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(model).attach(optimizer)
    model.append(nn.Linear(3, 3))
    optimizer.add_param_group({"params": model[3].parameters()})
    with pytest.raises(RuntimeError, match=r"a parameter of shape \(3, 3\) came into the optimizer.*rebind\(model"):
        train(model, optimizer, task(0))
    assert gate.rebind(model) == ["3"]
    gate.consolidate(task(0), loss)
    assert [layer.name for layer in gate.layers] == ["0", "2", "3"]


def test_what_was_ungated_from_the_start_stays_free():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(model[0]).attach(optimizer)
    optimizer.add_param_group({"params": model.append(nn.Linear(3, 3))[3].parameters()})
    train(model, optimizer, task(1)[:1])
    gate.consolidate(task(0), loss, model=model)
    assert gate.rebind(model[0]) == []


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(9, 3), r"layer '2' may only grow by rows, got shapes \[\(3, 9\)"),
        (nn.Linear(8, 2), r"layer '2' may only grow by rows, got shapes \[\(2, 8\)"),
        (nn.Linear(8, 3, False), "layer '2' may only grow by rows"),
        (nn.Tanh(), "`model` must hold the gated layers, .* but has no layer '2'"),
    ],
)
def test_other_changes_are_refused_by_name(module, message):
    model, optimizer = make_trained(1)
    old = list(model.parameters())
    model[2] = module
    with pytest.raises(ValueError, match=message):
        optimizer.rebind(model)
    now = [parameter for layer in optimizer.gate.layers for parameter in layer.parameters]
    assert all(a is b for a, b in zip(old, now, strict=True))


def test_layers_that_take_turns_are_no_trouble():
    """With one head per task, some layers have no gradient: their modules are still there."""
    model = nn.ModuleDict({"body": nn.Linear(12, 8), "a": nn.Linear(8, 3), "b": nn.Linear(8, 3)})
    optimizer = SFAO(model)
    for head in ("a", "b", "a"):
        optimizer.zero_grad()
        loss(model[head](model["body"](task(0)[0][0])), task(0)[0][1]).backward()
        optimizer.step()
        assert set(optimizer.last_decisions) == {"body", head}
