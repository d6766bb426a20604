"""Drop-in means drop-in: until something is remembered, SFAO trains as torch's SGD with the same arguments does."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfao import SFAO, layer_groups

rates = st.floats(1e-4, 0.5)


@st.composite
def arguments(draw):
    """Arguments that torch's SGD takes."""
    momentum = draw(st.sampled_from([0.0, 0.5, 0.9, 0.99]))
    nesterov = draw(st.booleans()) if momentum else False
    return {
        "lr": draw(rates),
        "momentum": momentum,
        "dampening": 0.0 if nesterov else draw(st.sampled_from([0.0, 0.1, 0.5])),
        "weight_decay": draw(st.sampled_from([0.0, 1e-4, 0.1])),
        "nesterov": nesterov,
        "maximize": draw(st.booleans()),
        "foreach": draw(st.sampled_from([None, True])),
        "fused": draw(st.sampled_from([None, False])),
    }


def network(seed: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4, bias=False), nn.Linear(4, 3)).to(dtype)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, steps: int = 6) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(model.parameters()).dtype
    for number in range(steps):
        inputs = torch.randn(8, 6, generator=generator).to(dtype)
        targets = torch.randint(0, 3, (8,), generator=generator)
        optimizer.zero_grad()
        # A layer that has no gradient in some steps: its momentum waits for the next.
        features = model[:2](inputs) if number % 3 else model[:2](inputs).detach()
        nn.functional.cross_entropy(model[2:](features), targets).backward()
        optimizer.step()


@settings(max_examples=60)
@given(arguments(), st.integers(0, 1000), st.booleans())
def test_until_something_is_remembered_it_is_sgd_bit_for_bit(given_arguments, seed, by_layer):
    plain = network(seed)
    gated = copy.deepcopy(plain)
    params = layer_groups(gated) if by_layer else gated.parameters()
    train(plain, torch.optim.SGD(plain.parameters(), **given_arguments), seed)
    train(gated, SFAO(params, **given_arguments), seed)
    for one, other in zip(plain.parameters(), gated.parameters(), strict=True):
        assert torch.equal(one, other)


def test_arguments_mean_the_same_by_position():
    plain, gated = network(0), network(0)
    train(plain, torch.optim.SGD(plain.parameters(), 0.1, 0.9, 0.0, 1e-3, True), 1)
    train(gated, SFAO(layer_groups(gated), 0.1, 0.9, 0.0, 1e-3, True), 1)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), gated.parameters(), strict=True))


def test_per_group_as_in_torch():
    plain, gated = network(2), network(2)
    of_sgd = [{"params": plain[0].parameters(), "lr": 0.3, "nesterov": True}, {"params": plain[2:].parameters()}]
    of_sfao = [
        {"params": gated[0].parameters(), "lr": 0.3, "nesterov": True, "name": "a"},
        {"params": gated[2:].parameters(), "name": "b"},
    ]
    train(plain, torch.optim.SGD(of_sgd, lr=0.05, momentum=0.8, weight_decay=0.01), 3)
    train(gated, SFAO(of_sfao, lr=0.05, momentum=0.8, weight_decay=0.01), 3)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), gated.parameters(), strict=True))


def test_a_learning_rate_that_is_a_tensor():
    plain, gated = network(4), network(4)
    train(plain, torch.optim.SGD(plain.parameters(), lr=torch.tensor(0.1), foreach=False), 5)
    train(gated, SFAO(layer_groups(gated), lr=torch.tensor(0.1)), 5)
    for one, other in zip(plain.parameters(), gated.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("given_arguments", "message"),
    [
        ({"foreach": False}, "`foreach` must not be False: all parameters always move in one pass"),
        ({"fused": True}, "`fused` must not be True: the gate stands between"),
        ({"differentiable": True}, "`differentiable` must not be True: the gate's decisions have no gradient"),
        ({"nesterov": True}, "`nesterov` needs momentum and no dampening, got momentum 0.0 and dampening 0.0"),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "`nesterov` needs momentum and no dampening"),
        ({"nesterov": 1, "momentum": 0.9}, "`nesterov` must be True or False, got 1"),
        ({"maximize": "yes"}, "`maximize` must be True or False, got 'yes'"),
        ({"dampening": float("nan"), "momentum": 0.9}, "`dampening` must be a finite number, got nan"),
        ({"fused": "yes"}, "`fused` must be True, False or None, got 'yes'"),
        (
            {"momentum_form": "ema", "momentum": 0.9, "nesterov": True},
            '`momentum_form="ema"` goes with neither `nesterov` nor `dampening`, got one of them',
        ),
    ],
    ids=str,
)
def test_what_cannot_be_had_is_refused_with_the_reason(given_arguments, message):
    with pytest.raises(ValueError, match=r".") as caught:
        SFAO(layer_groups(network(0)), **given_arguments)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["foreach", "fused", "differentiable"])
def test_the_same_in_a_param_group(name):
    wrong = {"foreach": False, "fused": True, "differentiable": True}[name]
    with pytest.raises(ValueError, match=f"`{name}` must not be {wrong}"):
        SFAO([{"params": network(0).parameters(), name: wrong}])
    SFAO([{"params": network(0).parameters(), name: not wrong}])


def test_the_paper_s_momentum_and_decay_are_options():
    model, optimizer_model = network(7), network(7)
    optimizer = SFAO(
        layer_groups(optimizer_model),
        lr=0.1,
        momentum=0.9,
        momentum_form="ema",
        weight_decay=0.2,
        decoupled_weight_decay=True,
    )
    train(optimizer_model, optimizer, 8, steps=1)
    head, moved = model[3], optimizer_model[3]
    update = moved.weight.grad
    expected = (1 - 0.1 * 0.2) * head.weight - 0.1 * (1 - 0.9) * update
    torch.testing.assert_close(moved.weight, expected)


def test_it_says_what_it_is_in_a_line():
    wide = nn.Sequential(*[nn.Linear(3, 3) for _ in range(40)])
    groups = layer_groups(wide)
    groups[3]["accept_above"] = 0.5
    optimizer = SFAO(groups, lr=0.05, momentum=0.9, capacity=50)
    assert (
        repr(optimizer)
        == "SFAO(40 layers, lr=0.05, momentum=0.9, memory='directions', capacity=50, accept_above per layer)"
    )
