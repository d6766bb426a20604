"""Options: errors name the argument, the rule and the value; a single threshold takes the other along."""

import pytest
import torch
from torch import nn

from sfao.gate import Gate
from sfao.layers import layer_groups
from sfao.optimizer import SFAO
from tests.problem import loss, make_trained, network, task, weights

BAD_OPTIONS = [
    ({"accept_above": 1.5}, "`accept_above` must be in [-1, 1], got 1.5"),
    ({"accept_above": float("nan")}, "`accept_above` must be in [-1, 1], got nan"),
    ({"accept_above": "high"}, "`accept_above` must be in [-1, 1], got 'high'"),
    ({"discard_below": -1.01}, "`discard_below` must be in [-1, 1], got -1.01"),
    ({"admit_below": 2}, "`admit_below` must be in [-1, 1], got 2"),
    ({"accept_above": 0.2, "discard_below": 0.5}, "`discard_below` must not exceed `accept_above` (0.2), got 0.5"),
    ({"capacity": 0}, "`capacity` must be a whole number of at least 1, got 0"),
    ({"samples": 2.5}, "`samples` must be a whole number of at least 1, got 2.5"),
    ({"rank": -1}, "`rank` must be a whole number of at least 1, got -1"),
    ({"min_norm": -1.0}, "`min_norm` must be a finite number of at least 0, got -1.0"),
    ({"strict": "yes"}, "`strict` must be True or False, got 'yes'"),
    ({"cosine": "sined"}, "`cosine` must be one of signed, absolute, got 'sined' (did you mean 'signed'?)"),
    ({"projection": "spam"}, "`projection` must be one of span, sequential, cone, got 'spam' (did you mean 'span'?)"),
    ({"eviction": "lru"}, "`eviction` must be one of balanced, fifo, reservoir, got 'lru'"),
    ({"storage": "sparse"}, "`storage` must be one of dense, factored, got 'sparse'"),
    ({"memory_dtype": "float8"}, "`memory_dtype` must be one of float32, bfloat16, got 'float8'"),
]  # fmt: skip
OF_THE_WHOLE = [
    ({"granularity": "tensor"}, "`granularity` must be one of layer, global, got 'tensor'"),
    ({"seed": -1}, "`seed` must be a whole number from 0"),
    ({"acept_above": 0.5}, "unknown option `acept_above` (did you mean 'accept_above'?)"),
    ({"memory": "directions"}, "`memory` was removed in version 0.2"),
    ({"memory_budget": "1GB"}, "`memory_budget` was removed in version 0.2"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS + OF_THE_WHOLE)
@pytest.mark.parametrize("kind", [SFAO, Gate])
def test_bad_options(options, message, kind):
    with pytest.raises(ValueError, match=r".") as caught:
        kind(network(), **options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tolerance", "every", "clip", "examples", "energy"])
@pytest.mark.parametrize("kind", [SFAO, Gate])
def test_options_of_another_class(name, kind):
    message = f"`{name}` is an option of sfao.DriftBound, not of sfao.{kind.__name__}"
    with pytest.raises(ValueError, match=message):
        kind(network(), **{name: 1})
    with pytest.raises(ValueError, match=message):
        kind([{"params": network().parameters(), name: 1}])
    with pytest.raises(ValueError, match=r"`lr` is an option of sfao\.SFAO, not of sfao\.Gate"):
        Gate(network(), lr=0.1)


@pytest.mark.parametrize("name", ["granularity", "seed", "sync"])
def test_options_of_the_whole_in_a_group(name):
    groups = layer_groups(network())
    groups[0][name] = 1
    for kind in (SFAO, Gate):
        with pytest.raises(ValueError, match=f"`{name}` is an option of the whole optimizer"):
            kind(groups)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (0.85, -1e-4)),
        ({"accept_above": 0.5}, (0.5, -1e-4)),
        ({"accept_above": -1}, (-1, -1)),
        ({"accept_above": -0.5}, (-0.5, -0.5)),
        ({"discard_below": 1}, (1, 1)),
        ({"discard_below": 0.9}, (0.9, 0.9)),
        ({"discard_below": 0.5}, (0.85, 0.5)),
    ],
)
def test_a_threshold_that_crosses_a_default_moves_it(given, expected):
    def read(group):
        return group["accept_above"], group["discard_below"]

    assert read(Gate(network(), **given).param_groups[0]) == expected
    groups = layer_groups(network())
    groups[1].update(given)
    first, second = SFAO(groups).param_groups
    assert read(first) == (0.85, -1e-4)
    assert read(second) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"projection": "spam"}, "`projection` must be one of"),
        ({"accept_above": 5}, "`accept_above` must be in"),
    ],
)
def test_options_changed_to_something_bad_are_caught_before_anything_moves(change, message):
    model, optimizer = make_trained()
    optimizer.zero_grad()
    loss(model(task(3)[0][0]), task(3)[0][1]).backward()
    optimizer.param_groups[1].update(change)
    before, counts, gradient = weights(model), optimizer.counts, model[0].weight.grad.clone()
    with pytest.raises(ValueError, match=r".") as caught:
        optimizer.step()
    assert str(caught.value).startswith(message)
    assert torch.equal(weights(model), before)
    assert torch.equal(model[0].weight.grad, gradient)
    assert optimizer.counts == counts


def test_capacity_may_be_raised():
    _, optimizer = make_trained(1, capacity=4)
    for group in optimizer.param_groups:
        group["capacity"] += 6
    optimizer.consolidate(task(1), loss)
    assert [len(layer.memory) for layer in optimizer.gate.layers] == [10, 10]


def test_the_global_gate_has_one_set_of_options():
    groups = layer_groups(network())
    groups[1]["accept_above"] = 0.1
    with pytest.raises(ValueError, match='`accept_above` must be the same in all groups when granularity="global"'):
        SFAO(groups, granularity="global")


def test_repr_shows_what_differs_from_the_defaults():
    groups = layer_groups(nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)]))
    groups[3]["accept_above"] = 0.5
    assert repr(SFAO(groups, lr=0.05, capacity=50)) == "SFAO(4 layers, lr=0.05, capacity=50, accept_above per layer)"
    gate = Gate(network(), granularity="global", strict=True, seed=3)
    assert repr(gate) == "Gate(1 layer, strict=True, granularity='global', seed=3)"
    assert repr(SFAO(network())) == "SFAO(2 layers)"
