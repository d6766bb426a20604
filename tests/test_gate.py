"""The gate in front of other optimizers."""

import copy

import pytest
import torch
from torch import nn

import sfao
from sfao.attachment import ATTACHED
from sfao.decision import Decision
from sfao.gate import Gate
from sfao.optimizer import SFAO
from tests.problem import PROJECT, loss, make_trained, network, task, train, weights

BASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def attach(base, **options):
    model = network()
    optimizer = BASES[base](model.parameters())
    gate = Gate(model, **options).attach(optimizer)
    train(model, optimizer, task(0))
    gate.consolidate(task(0), loss)
    return model, optimizer, gate


def test_in_front_of_sgd_it_is_sfao():
    options = {"accept_above": 0.4, "discard_below": 0.0, "samples": 3}
    model, optimizer, gate = attach("sgd", **options)
    train(model, optimizer, task(1), epochs=3)
    own, sfao = make_trained(1, **options)
    train(own, sfao, task(1), epochs=3)
    assert torch.equal(weights(model), weights(own))
    assert gate.counts == sfao.counts
    assert sum(c["project"] for c in gate.counts.values()) > 0


@pytest.mark.parametrize("base", BASES)
def test_a_discarded_layer_does_not_move(base):
    model, optimizer, gate = attach(base, discard_below=1)
    before, state = weights(model), copy.deepcopy(optimizer.state_dict()["state"])
    train(model, optimizer, task(1))
    assert set(gate.last_decisions.values()) == {Decision.DISCARD}
    assert torch.equal(weights(model), before)
    for number, own in optimizer.state_dict()["state"].items():
        assert all(
            torch.equal(torch.as_tensor(own[k]), torch.as_tensor(v)) for k, v in state[number].items() if v is not None
        )
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())
    assert gate.risk() == 0


def test_one_optimizer_has_one_gate():
    model, optimizer, gate = attach("sgd")
    with pytest.raises(ValueError, match="detach"):
        gate.attach(BASES["sgd"](model.parameters()))
    with pytest.raises(ValueError, match="can have one Gate or DriftBound, but this SGD has a Gate"):
        Gate(model).attach(optimizer)
    with pytest.raises(ValueError, match="can have one Gate or DriftBound, but this SFAO has a Gate"):
        Gate(model).attach(SFAO(model))
    with pytest.raises(ValueError, match="can have one Gate or DriftBound, but this SFAO has a Gate"):
        Gate(model).attach(copy.deepcopy(SFAO(model)))


def test_optimizers_that_cannot_be_gated():
    model = network()
    with pytest.raises(ValueError, match="got LBFGS"):
        Gate(model).attach(torch.optim.LBFGS(model.parameters()))
    with pytest.raises(ValueError, match="`optimizer` must be a torch optimizer, got a NoneType"):
        Gate(model).attach(None)
    other = BASES["sgd"](network().parameters())
    with pytest.raises(ValueError, match="must optimize all gated parameters, but not those of '0'"):
        Gate(model).attach(other)
    assert other not in ATTACHED


def test_a_gate_that_was_never_attached_cannot_consolidate():
    gate = Gate(network())
    with pytest.raises(
        RuntimeError, match=r"consolidate\(\) needs a gate in front of an optimizer; attach\(\) it first"
    ):
        gate.consolidate(task(0), loss)
    assert gate.is_empty
    assert gate.tasks == 0


def test_ungated_parameters_are_left_alone():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(model[2], discard_below=1).attach(optimizer)
    gate.consolidate(task(0), loss, model=model)
    first, last = model[0].weight.clone(), model[2].weight.clone()
    train(model, optimizer, task(1))
    assert not torch.equal(first, model[0].weight)
    assert torch.equal(last, model[2].weight)


def test_detached_it_gates_no_more():
    model, optimizer, gate = attach("sgd", discard_below=1)
    gate.detach()
    assert "sfao" not in optimizer.state_dict()
    before = weights(model)
    train(model, optimizer, task(1))
    assert not torch.equal(weights(model), before)
    gate.attach(optimizer)
    before = weights(model)
    train(model, optimizer, task(1))
    assert torch.equal(weights(model), before)


def test_a_copy_of_a_gate_is_attached_to_nothing():
    model, optimizer, gate = attach("sgd", discard_below=1)
    other_model, other_optimizer, other = copy.deepcopy((model, optimizer, gate))
    with pytest.raises(RuntimeError, match=r"attach\(\) it first"):
        other.consolidate(task(1), loss)
    other_optimizer = BASES["sgd"](other_model.parameters())
    other.attach(other_optimizer)
    before = weights(other_model)
    train(other_model, other_optimizer, task(1))
    assert torch.equal(weights(other_model), before)
    other.consolidate(task(1), loss)
    assert (other.tasks, gate.tasks) == (2, 1)


def test_layers_can_be_added():
    model, optimizer, gate = attach("sgd", **PROJECT)
    head = nn.Linear(8, 3)
    optimizer.add_param_group({"params": head.parameters()})
    gate.add_param_group({"params": head.parameters(), "name": "head", "accept_above": 0.5})
    train(nn.Sequential(model[:2], head), optimizer, task(1))
    assert gate.last_decisions == {"0": Decision.PROJECT, "head": Decision.ACCEPT}
    with pytest.raises(ValueError, match="a parameter must be in one group once"):
        gate.add_param_group({"params": head.parameters()})


def test_grad_scaler_with_a_fused_optimizer():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    gate = Gate(model).attach(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    inputs, targets = task(0)[0]
    scaler.scale(loss(model(inputs), targets)).backward()
    scaler.step(optimizer)
    assert gate.counts["0"]["accept"] == 1
    gate.detach()
    assert optimizer._step_supports_amp_scaling


def test_hooks_are_called_after_a_consolidation_that_succeeded():
    _, optimizer = make_trained(0)
    seen = []
    handle = optimizer.register_consolidate_hook(lambda gate: seen.append(gate.tasks))
    optimizer.consolidate(task(0), loss)
    with pytest.raises(ValueError, match="at least one batch"):
        optimizer.consolidate([], loss)
    handle.remove()
    optimizer.consolidate(task(1), loss)
    assert seen == [1]
    copy.deepcopy(optimizer)


def test_an_option_that_is_fixed_once_a_layer_is_made():
    model = torch.nn.Linear(3, 2)
    optimizer = sfao.SFAO(model)
    optimizer.param_groups[0]["storage"] = "factored"
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(ValueError, match="`storage` is fixed at 'dense' once a layer is made"):
        optimizer.step()
