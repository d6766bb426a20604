"""SFAO around the gate: until something is remembered it is torch's SGD; momentum, decay, closures, copies."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfao.layers import layer_groups
from sfao.optimizer import SFAO
from tests.problem import loss, make_trained, network, task, train, weights

LIKE_SGD = {"momentum_form": "heavy_ball", "decoupled_weight_decay": False}


@st.composite
def arguments(draw):
    """Arguments that torch's SGD takes."""
    momentum = draw(st.sampled_from([0.0, 0.5, 0.9, 0.99]))
    nesterov = draw(st.booleans()) if momentum else False
    return {
        "lr": draw(st.floats(1e-4, 0.5)),
        "momentum": momentum,
        "dampening": 0.0 if nesterov else draw(st.sampled_from([0.0, 0.1, 0.5])),
        "weight_decay": draw(st.sampled_from([0.0, 1e-4, 0.1])),
        "nesterov": nesterov,
        "maximize": draw(st.booleans()),
        "foreach": draw(st.sampled_from([None, True])),
        "fused": draw(st.sampled_from([None, False])),
    }


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4, bias=False), nn.Linear(4, 3))


def learn(model, optimizer, seed, steps=6):
    generator = torch.Generator().manual_seed(seed)
    for number in range(steps):
        inputs, targets = torch.randn(8, 6, generator=generator), torch.randint(0, 3, (8,), generator=generator)
        optimizer.zero_grad()
        # A layer that has no gradient in some steps: its momentum waits for the next.
        features = model[:2](inputs) if number % 3 else model[:2](inputs).detach()
        nn.functional.cross_entropy(model[2:](features), targets).backward()
        optimizer.step()


@settings(max_examples=60, deadline=None)
@given(arguments(), st.integers(0, 1000), st.booleans())
def test_like_sgd(given_arguments, seed, by_layer):
    plain = make_model(seed)
    gated = copy.deepcopy(plain)
    learn(plain, torch.optim.SGD(plain.parameters(), **given_arguments), seed)
    learn(gated, SFAO(gated if by_layer else gated.parameters(), **given_arguments, **LIKE_SGD), seed)
    assert torch.equal(weights(plain), weights(gated))


@given(st.floats(0.01, 0.99), st.floats(0, 0.5), st.booleans())
@settings(max_examples=20, deadline=None)
def test_the_defaults_are_the_paper_s_average_and_decay(momentum, decay, maximize):
    model = make_model(7)
    optimizer = SFAO(model, lr=0.1, momentum=momentum, weight_decay=decay, maximize=maximize)
    parameter, average, expected = model[3].weight, 0.0, model[3].weight.detach().double()
    for seed in range(4):
        learn(model, optimizer, seed, steps=1)
        gradient = parameter.grad.double() * (-1 if maximize else 1)
        average = momentum * average + (1 - momentum) * gradient
        expected = (1 - 0.1 * decay) * expected - 0.1 * average
    assert torch.allclose(parameter.double(), expected, atol=1e-6)
    assert SFAO(make_model(0)).defaults["momentum"] == 0.9


def test_a_learning_rate_that_is_a_tensor():
    plain, gated = make_model(4), make_model(4)
    learn(plain, torch.optim.SGD(plain.parameters(), lr=torch.tensor(0.1), foreach=False), 5)
    learn(gated, SFAO(gated, lr=torch.tensor(0.1), momentum=0.0), 5)
    assert torch.allclose(weights(plain), weights(gated))


BAD_DESCENT = [
    ({"lr": -0.1}, "`lr` must be a finite number of at least 0, got -0.1"),
    ({"momentum": 1.0}, "`momentum` must be in [0, 1), got 1.0"),
    ({"momentum": -0.5}, "`momentum` must be in [0, 1), got -0.5"),
    ({"weight_decay": -1}, "`weight_decay` must be a finite number of at least 0, got -1"),
    ({"momentum_form": "nag"}, "`momentum_form` must be one of ema, heavy_ball, got 'nag'"),
    ({"nesterov": True, "momentum": 0.0, "momentum_form": "heavy_ball"}, "`nesterov` needs momentum and no dampening"),
    ({"dampening": 0.1}, '`momentum_form="ema"` goes with neither `nesterov` nor `dampening`, got one of them'),
]


@pytest.mark.parametrize(("given_arguments", "message"), BAD_DESCENT, ids=str)
@pytest.mark.parametrize("in_group", [False, True])
def test_bad_arguments(given_arguments, message, in_group):
    group, whole = ({}, given_arguments) if not in_group else (given_arguments, {})
    with pytest.raises(ValueError, match=r".") as caught:
        SFAO([{"params": network().parameters(), **group}], **whole)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["fused", "differentiable"])
def test_steps_that_leave_no_room_for_the_gate(name):
    with pytest.raises(ValueError, match="`fused` and `differentiable` must not be True"):
        SFAO(network(), **{name: True})


def test_old_calls_say_what_is_new():
    with pytest.raises(TypeError, match=r"SFAO.paper\(...\) is SFAO\(...\) since version 0.2"):
        SFAO.paper(layer_groups(network()), lr=0.1)
    model, optimizer = make_trained(0)
    for arguments in ((model, task(0)), (model, task(0), loss)):
        with pytest.raises(ValueError, match=r"got a Sequential; call consolidate\(batches, loss\)"):
            optimizer.consolidate(*arguments)
    with pytest.raises(TypeError, match=r"call consolidate\(batches, loss\)"):
        optimizer.consolidate(task(0), loss, model)


def test_momentum_starts_again_at_a_task_boundary():
    for end in (lambda optimizer: optimizer.end_task(), lambda optimizer: optimizer.consolidate(task(0), loss)):
        model, optimizer = make_trained(0, momentum=0.9)
        train(model, optimizer, task(0))
        assert all("momentum_buffer" in state for state in optimizer.state.values())
        end(optimizer)
        before = weights(model)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        assert torch.equal(weights(model), before)


def test_closures_and_hooks_run_once():
    model, optimizer = make_trained(1)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    inputs, targets = task(1)[0]

    def closure():
        calls.append("closure")
        optimizer.zero_grad()
        value = loss(model(inputs), targets)
        value.backward()
        return value

    assert optimizer.step(closure).item() > 0
    assert calls == ["before", "closure", "after"]


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["copy", "pickle"])
def test_copies_go_on_alike(twin):
    model, optimizer = make_trained(2, momentum=0.9, samples=3, capacity=8)
    train(model, optimizer, task(2)[:2])
    other_model, other = twin((model, optimizer))
    for pair in ((model, optimizer), (other_model, other)):
        train(*pair, task(2)[2:])
        pair[1].consolidate(task(2), loss)
        train(*pair, task(3))
    assert torch.equal(weights(model), weights(other_model))
    assert optimizer.counts == other.counts
    alone = copy.deepcopy(optimizer)
    alone.consolidate(task(4), loss)
    assert optimizer.gate.tasks == 3


def test_grad_scaler_skips_steps_that_are_not_finite():
    model, optimizer = make_trained(1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    before = weights(model)
    inputs, targets = task(1)[0]
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(loss(model(inputs), targets) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(weights(model), before) == (factor != 1.0)


def test_layers_that_are_frozen_at_first_can_be_trained_later():
    model = network()
    model[0].requires_grad_(False)
    optimizer = SFAO(model, lr=0.1)
    before = weights(model[0])
    train(model, optimizer, task(0))
    assert torch.equal(weights(model[0]), before)
    model[0].requires_grad_(True)
    train(model, optimizer, task(0))
    assert not torch.equal(weights(model[0]), before)
