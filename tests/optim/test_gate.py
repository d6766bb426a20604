"""The gate in front of other optimizers."""

import copy

import pytest
import torch

from sfao import SFAO, Decision, Gate, layer_groups
from tests.optim.problem import loss, network, task, train, weights

BASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def attached(base: str, **options):
    model = network()
    optimizer = BASES[base](model.parameters())
    gate = Gate(layer_groups(model), **options).attach(optimizer)
    train(model, optimizer, task(0))
    gate.consolidate(model, task(0), loss)
    return model, optimizer, gate


def test_in_front_of_sgd_it_is_sfao():
    options = {"accept_above": 0.4, "discard_below": 0.0, "samples": 3}
    model, optimizer, gate = attached("sgd", **options)
    train(model, optimizer, task(1), epochs=3)
    own = network()
    sfao = SFAO(layer_groups(own), lr=0.1, **options)
    train(own, sfao, task(0))
    sfao.consolidate(own, task(0), loss)
    train(own, sfao, task(1), epochs=3)
    assert torch.equal(weights(model), weights(own))
    assert gate.counts == sfao.counts
    assert sum(c["project"] for c in gate.counts.values()) > 0


@pytest.mark.parametrize("base", BASES)
def test_a_discarded_layer_does_not_move(base):
    model, optimizer, gate = attached(base, accept_above=1, discard_below=1)
    before, state = weights(model), copy.deepcopy(optimizer.state_dict()["state"])
    train(model, optimizer, task(1))
    assert set(gate.last_decisions.values()) == {Decision.DISCARD}
    assert torch.equal(weights(model), before)
    for number, own in optimizer.state_dict()["state"].items():
        assert all(
            torch.equal(torch.as_tensor(own[k]), torch.as_tensor(v)) for k, v in state[number].items() if v is not None
        )


@pytest.mark.parametrize("base", BASES)
def test_only_the_discarded_layer_stands_still(base):
    model = network()
    optimizer = BASES[base](model.parameters())
    groups = layer_groups(model)
    groups[0].update(accept_above=1, discard_below=1)
    groups[1].update(accept_above=1, discard_below=-1)
    gate = Gate(groups).attach(optimizer)
    train(model, optimizer, task(0))
    gate.consolidate(model, task(0), loss)
    first, last = model[0].weight.clone(), model[2].weight.clone()
    train(model, optimizer, task(1))
    assert torch.equal(first, model[0].weight)
    assert not torch.equal(last, model[2].weight)


def test_after_the_step_the_gradient_of_a_discarded_layer_is_zero():
    model, optimizer, gate = attached("adamw", accept_above=1, discard_below=1)
    train(model, optimizer, task(1))
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())
    assert gate.risk() == 0


def test_closures_are_gated():
    options = {"accept_above": 0.4, "discard_below": 0.0}
    one, plain, _ = attached("nesterov", **options)
    other, closed, gate = attached("nesterov", **options)
    train(one, plain, task(1))
    for inputs, targets in task(1):

        def closure(inputs=inputs, targets=targets):
            closed.zero_grad()
            value = loss(other(inputs), targets)
            value.backward()
            return value

        value = closed.step(closure)
        assert value.item() > 0
    assert torch.equal(weights(one), weights(other))
    assert sum(gate.counts["0"].values()) == 12


def test_optimizers_that_move_what_has_no_gradient_are_refused():
    model = network()
    with pytest.raises(ValueError, match="got LBFGS"):
        Gate(layer_groups(model)).attach(torch.optim.LBFGS(model.parameters()))
    with pytest.raises(ValueError, match="`optimizer` must be a torch optimizer, got NoneType"):
        Gate(layer_groups(model)).attach(None)


def test_a_step_that_failed_leaves_nothing_behind():
    """A gradient hidden by a discard, then an error inside step(): the next step must see its own gradients."""
    model, optimizer, gate = attached("sgd", accept_above=1, discard_below=1)
    loss(model(task(1)[0][0]), task(1)[0][1]).backward()
    gate._attachment._apply_and_hide()  # the step before failed here, after the gate
    assert all(p.grad is None for p in model.parameters())
    for group in gate.param_groups:
        group.update(accept_above=1, discard_below=-1)
    train(model, optimizer, task(2)[:1])
    assert all(p.grad.any() for p in model.parameters())


def test_a_layer_added_midway():
    model, optimizer, gate = attached("sgd", accept_above=1, discard_below=-1)
    head = torch.nn.Linear(8, 3)
    optimizer.add_param_group({"params": head.parameters()})
    gate.add_param_group({"params": head.parameters(), "name": "head", "accept_above": 0.5})
    both = torch.nn.Sequential(model[:2], head)
    train(both, optimizer, task(1))
    assert gate.last_decisions == {"0": Decision.PROJECT, "head": Decision.ACCEPT}
    with pytest.raises(ValueError, match="a parameter must be in one group once"):
        gate.add_param_group({"params": head.parameters()})


def test_detaching_leaves_a_fused_optimizer_as_it_was():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    gate = Gate(layer_groups(model)).attach(optimizer)
    gate.detach()
    assert optimizer._step_supports_amp_scaling


def test_detached_it_gates_no_more():
    model, optimizer, gate = attached("sgd", accept_above=1, discard_below=1)
    gate.detach()
    before = weights(model)
    train(model, optimizer, task(1))
    assert not torch.equal(weights(model), before)
    gate.attach(optimizer)
    before = weights(model)
    train(model, optimizer, task(1))
    assert torch.equal(weights(model), before)


def test_a_copy_of_a_gate_is_attached_to_nothing():
    model, optimizer, gate = attached("sgd", accept_above=1, discard_below=1)
    other_model, other_optimizer, other = copy.deepcopy((model, optimizer, gate))
    before = weights(other_model)
    train(other_model, other_optimizer, task(1))
    assert not torch.equal(weights(other_model), before)
    other.attach(other_optimizer)
    train(model, optimizer, task(1))
    assert torch.equal(weights(model), before)


def test_one_gate_guards_one_optimizer():
    model, optimizer, gate = attached("sgd")
    with pytest.raises(ValueError, match="detach"):
        gate.attach(optimizer)
    with pytest.raises(ValueError, match="must optimize all gated parameters"):
        Gate(layer_groups(model)).attach(torch.optim.SGD(model[0].parameters(), lr=0.1))


def test_ungated_parameters_are_left_alone():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(layer_groups(model[2]), accept_above=1, discard_below=1).attach(optimizer)
    gate.consolidate(model, task(0), loss)
    first, last = model[0].weight.clone(), model[2].weight.clone()
    train(model, optimizer, task(1))
    assert not torch.equal(first, model[0].weight)
    assert torch.equal(last, model[2].weight)
