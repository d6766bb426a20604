"""Small layers never freeze in silence."""

import warnings

import pytest
import torch
from torch import nn

from sfao import SFAO, layer_groups

LOSS = nn.CrossEntropyLoss()


def with_norm():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def batches():
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(16, 8, generator=generator), torch.randint(0, 3, (16,), generator=generator)) for _ in range(30)
    ]


def test_a_layer_that_its_directions_span_is_named_once():
    model = with_norm()
    optimizer = SFAO(layer_groups(model), lr=0.1, memory="directions")
    with pytest.warns(RuntimeWarning, match=r"span all of their parameters.*'1' \(12 parameters\)"):
        optimizer.consolidate(model, batches(), LOSS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.consolidate(model, batches(), LOSS)


def test_fewer_directions_than_parameters_are_no_reason_to_warn():
    model = with_norm()
    groups = layer_groups(model)
    groups[1]["capacity"] = 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SFAO(groups, lr=0.1, memory="directions", capacity=20).consolidate(model, batches(), LOSS)


def test_a_bias_that_is_a_layer_of_its_own_is_named():
    model = nn.Linear(8, 3)
    optimizer = SFAO(model.parameters(), lr=0.1)
    with pytest.warns(RuntimeWarning, match=r"layers without an input space remember nothing.*'layer1' \(linear\)"):
        optimizer.consolidate(model, batches())
    assert [layer.remembers_inputs for layer in optimizer.gate.layers] == [True, False]


def test_a_layer_without_an_input_space_is_named_and_moves_on():
    model = with_norm()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    with pytest.warns(RuntimeWarning, match=r"layers without an input space remember nothing.*'1' \(batch_norm\)"):
        optimizer.consolidate(model, batches())
    before = model[1].weight.clone()
    inputs, targets = batches()[0]
    LOSS(model(inputs), targets).backward()
    gradient = model[1].weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(model[1].weight, before - 0.1 * gradient)
