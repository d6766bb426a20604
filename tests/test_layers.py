"""Layers: names, param groups, and what can't be gated."""

import pytest
import torch
from torch import nn

from sfao.gate import Gate
from sfao.layers import count_free_bytes, layer_groups
from sfao.optimizer import SFAO
from tests.problem import network


def test_one_group_for_each_module_with_parameters():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ModuleList([nn.BatchNorm1d(2)]), "c": nn.ReLU()})
    assert [(group["name"], len(group["params"])) for group in layer_groups(model)] == [("a", 2), ("b.0", 2)]
    assert layer_groups(nn.Linear(1, 1))[0]["name"] == "(root)"


def test_shared_parameters_belong_to_the_first_module():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert [len(group["params"]) for group in layer_groups(model)] == [2, 1]


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


def test_plain_parameters_and_named_ones_are_layers_of_their_own():
    model = network()
    assert list(SFAO(model.parameters()).counts) == ["layer0", "layer1", "layer2", "layer3"]
    assert list(SFAO(model.named_parameters()).counts) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    optimizer = SFAO([{"params": model[0].parameters(), "name": "layer0"}, {"params": model[2].weight}])
    assert list(optimizer.counts) == ["layer0", "layer1"]
    optimizer.add_param_group({"params": [model[2].bias]})
    assert list(optimizer.counts) == ["layer0", "layer1", "layer2"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([1, 2], "`params` must hold parameters, .* got int"),
        ([{"name": "x"}], "got a dict without it"),
        ([{"params": []}], "a param group must hold at least one parameter"),
        ([], "`params` must hold at least one trainable parameter, got none"),
        (torch.zeros(3), "`params` must be a model, or an iterable .* got a Tensor"),
        (None, "`params` must be a model, or an iterable .* got a NoneType"),
        ([torch.zeros(2, requires_grad=True) * 2], "must be leaf tensors"),
        ([torch.zeros(2, dtype=torch.int64)], "must be leaf tensors of real numbers"),
        ([nn.UninitializedParameter()], "uninitialized parameter"),
        (
            [{"params": [nn.Parameter(torch.zeros(1))], "name": "a"}] * 2,
            "`name` must be unique among param groups, got 'a'",
        ),
    ],
)
@pytest.mark.parametrize("kind", [SFAO, Gate])
def test_what_cannot_be_gated(params, message, kind):
    with pytest.raises(ValueError, match=message):
        kind(params)


def test_a_parameter_is_in_one_group():
    weight = nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match="in one group once"):
        Gate([{"params": [weight]}, {"params": [weight]}])


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


def test_a_dense_memory_that_does_not_fit_fails_at_once(monkeypatch):
    assert count_free_bytes(torch.device("cpu")) > 0
    monkeypatch.setattr("sfao.layers.count_free_bytes", lambda device: 10_000)
    with pytest.raises(ValueError, match=r"take 0.0 GB, but cpu has 0.0 GB free; use storage='factored'"):
        SFAO(network(), capacity=100)
    SFAO(network(), capacity=100, storage="factored")
    SFAO(network(), capacity=10)
    monkeypatch.setattr("sfao.layers.count_free_bytes", lambda device: None)
    SFAO(network(), capacity=10**9)
