"""Errors: one or two lines that name the argument, the rule and the value; nothing changed."""

import copy

import pytest
import torch
from torch import nn

from sfao import SFAO, Gate, layer_groups
from tests.optim.problem import loss, network, task, trained, weights
from tests.optim.test_state import same

BAD_OPTIONS = [
    ({"accept_above": 1.5}, "`accept_above` must be in [-1, 1], got 1.5"),
    ({"accept_above": float("nan")}, "`accept_above` must be in [-1, 1], got nan"),
    ({"accept_above": "high"}, "`accept_above` must be in [-1, 1], got 'high'"),
    ({"discard_below": -1.01}, "`discard_below` must be in [-1, 1], got -1.01"),
    ({"admit_below": 2}, "`admit_below` must be in [-1, 1], got 2"),
    ({"accept_above": 0.2, "discard_below": 0.5}, "`discard_below` must not exceed `accept_above` (0.2), got 0.5"),
    ({"capacity": 0}, "`capacity` must be a whole number of at least 1, got 0"),
    ({"capacity": 2.5}, "`capacity` must be a whole number of at least 1, got 2.5"),
    ({"samples": 0}, "`samples` must be a whole number of at least 1, got 0"),
    ({"rank": -1}, "`rank` must be a whole number of at least 1, got -1"),
    ({"min_norm": -1.0}, "`min_norm` must be a finite number of at least 0, got -1.0"),
    ({"strict": "yes"}, "`strict` must be True or False, got 'yes'"),
    ({"cosine": "sined"}, "`cosine` must be one of signed, absolute, got 'sined' (did you mean 'signed'?)"),
    ({"projection": "span "}, "`projection` must be one of span, sequential, cone, got 'span ' (did you mean 'span'?)"),
    ({"eviction": "lru"}, "`eviction` must be one of balanced, fifo, reservoir, got 'lru'"),
    ({"storage": "sparse"}, "`storage` must be one of dense, factored, got 'sparse'"),
    ({"memory_dtype": "float8"}, "`memory_dtype` must be one of float32, bfloat16, got 'float8' (did you mean"),
    ({"granularity": "tensor"}, "`granularity` must be one of layer, global, got 'tensor'"),
    ({"acept_above": 0.5}, "`acept_above` is no option (did you mean 'accept_above'?)"),
]  # fmt: skip

BAD_DESCENT = [
    ({"lr": -0.1}, "`lr` must be a finite number of at least 0, got -0.1"),
    ({"lr": float("inf")}, "`lr` must be a finite number of at least 0, got inf"),
    ({"momentum": 1.0}, "`momentum` must be in [0, 1), got 1.0"),
    ({"momentum": -0.5}, "`momentum` must be a finite number of at least 0, got -0.5"),
    ({"weight_decay": -1}, "`weight_decay` must be a finite number of at least 0, got -1"),
    ({"momentum_form": "nag"}, "`momentum_form` must be one of heavy_ball, ema, got 'nag'"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS + BAD_DESCENT)
def test_options_of_sfao(options, message):
    with pytest.raises(ValueError, match=r".") as caught:
        SFAO(layer_groups(network()), memory="directions", **options)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_options_of_a_gate(options, message):
    with pytest.raises(ValueError, match=r".") as caught:
        Gate(layer_groups(network()), memory="directions", **options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(case for case in BAD_OPTIONS[:17]),
        *BAD_DESCENT,
        ({"acept_above": 0.5}, "`acept_above` is no option of a param group"),
    ],
)
def test_options_of_a_group_added_later(options, message):
    optimizer = SFAO(layer_groups(network()), memory="directions")
    with pytest.raises(ValueError, match=r".") as caught:
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))], **options})
    assert str(caught.value).startswith(message)
    assert len(optimizer.param_groups) == len(optimizer.counts) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"projection": "spam"}, "`projection` must be one of"),
        ({"samples": 0}, "`samples` must be"),
        ({"accept_above": 5}, "`accept_above` must be in"),
        ({"capacity": 3}, "`capacity` is fixed when a layer is made (200), got 3 for '2'"),
        ({"storage": "factored"}, "`storage` is fixed when a layer is made"),
    ],
)
@pytest.mark.parametrize("action", ["step", "remember"])
def test_options_changed_to_something_bad_are_caught_before_anything_moves(change, message, action):
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", lr=0.1, accept_above=1, discard_below=-1))
    optimizer.zero_grad()
    loss(model(task(3)[0][0]), task(3)[0][1]).backward()
    optimizer.param_groups[1].update(change)
    before, counts, gradient = weights(model), optimizer.counts, model[0].weight.grad.clone()
    with pytest.raises(ValueError, match=r".") as caught:
        getattr(optimizer, action)()
    assert str(caught.value).startswith(message)
    assert torch.equal(weights(model), before)
    assert torch.equal(model[0].weight.grad, gradient)
    assert optimizer.counts == counts


def test_options_of_the_global_gate_change_together():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), memory="directions", granularity="global"), 1)
    optimizer.param_groups[1]["accept_above"] = 0.2
    with pytest.raises(ValueError, match="must be the same in all groups"):
        optimizer.step()


@pytest.mark.parametrize("name", ["granularity", "seed", "memory_budget"])
def test_options_of_the_whole_are_no_options_of_a_group(name):
    groups = layer_groups(network())
    groups[0][name] = "64MiB"
    for kind in (SFAO, Gate):
        with pytest.raises(ValueError, match=f"`{name}` is an option of the whole optimizer"):
            kind(groups)


@pytest.mark.parametrize("seed", ["a", 1.5, -1, 2**64])
def test_seeds(seed):
    with pytest.raises(ValueError, match="`seed` must be a whole number from 0"):
        SFAO(layer_groups(network()), memory="directions", seed=seed)


@pytest.mark.parametrize(
    "params", [[1, 2], [[nn.Parameter(torch.zeros(1))]], [{"name": "x"}], [{"params": []}], nn.Linear(2, 2)]
)
def test_what_cannot_be_parameters(params):
    for kind in (SFAO, Gate):
        with pytest.raises(ValueError, match=r"`params` must|a param group must hold"):
            kind(params)


def test_a_gate_takes_each_parameter_once_and_only_leaves():
    weight = nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match="in one group once"):
        Gate([{"params": [weight]}, {"params": [weight]}])
    with pytest.raises(ValueError, match="leaf"):
        Gate([weight * 2])


def test_parameters_without_entries_and_tiny_gradients_are_no_trouble():
    model = nn.ParameterDict({"empty": torch.zeros(0, 3), "other": torch.zeros(0, 3), "one": torch.zeros(3)}).double()
    for storage in ("dense", "factored"):
        optimizer = SFAO([{"params": model.parameters()}], storage=storage, memory_dtype="bfloat16")
        for scale in (1.0, 1e-310, 1.0):
            for parameter in model.parameters():
                parameter.grad = scale * torch.ones_like(parameter)
            optimizer.step()
            optimizer.remember()
        assert optimizer.counts["layer0"] == {"accept": 2, "project": 0, "discard": 0, "zero": 1}


def test_types_that_torch_takes():
    import numpy as np

    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions", lr=torch.tensor(0.1), capacity=np.int64(5))
    trained(model, optimizer)


def test_names_must_be_unique():
    optimizer = SFAO(layer_groups(network()), memory="directions")
    with pytest.raises(ValueError, match="`name` must be unique among param groups, got '0' twice"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "name": "0"})
    assert len(optimizer.param_groups) == 2


def test_the_global_gate_has_one_set_of_options():
    groups = layer_groups(network())
    groups[1]["accept_above"] = 0.1
    with pytest.raises(ValueError, match='`accept_above` must be the same in all groups when granularity="global"'):
        SFAO(groups, granularity="global", memory="directions")


@pytest.mark.parametrize("parameters", [[], torch.zeros(3)])
@pytest.mark.parametrize("kind", [SFAO, Gate])
def test_no_parameters(parameters, kind):
    with pytest.raises(ValueError, match=r"empty parameter list|`params` must"):
        kind(parameters)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("action", ["step", "remember"])
def test_a_gradient_that_is_not_finite_is_named_and_changes_nothing(value, action):
    model = network()
    optimizer = trained(
        model, SFAO(layer_groups(model), memory="directions", lr=0.1, momentum=0.9, accept_above=1, discard_below=-1)
    )
    optimizer.zero_grad()
    loss(model(task(3)[0][0]), task(3)[0][1]).backward()
    model[2].bias.grad[1] = value  # the last layer: those before must not have moved either
    before, state = weights(model), copy.deepcopy(optimizer.state_dict())
    gradient = model[0].weight.grad.clone()
    with pytest.raises(ValueError, match=r"the gradient of layer '2' must be finite, got (nan|inf)"):
        getattr(optimizer, action)()
    assert torch.equal(weights(model), before)
    assert torch.equal(model[0].weight.grad, gradient)
    same(state, optimizer.state_dict())


def test_sparse_gradients_are_refused():
    model = nn.Embedding(10, 3, sparse=True)
    optimizer = SFAO(layer_groups(model), memory="directions")
    model(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ValueError, match=r"the gradient of layer '\(root\)' must be dense, got a sparse tensor"):
        optimizer.step()


def test_risk_needs_an_update():
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions")
    optimizer.consolidate(model, task(0), loss)
    with pytest.raises(RuntimeError, match=r"call it before zero_grad"):
        optimizer.risk()
