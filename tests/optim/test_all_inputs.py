"""Inputs of layers, all of them, in float64: a layer is its weight matrix times the inputs whose moments are found."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfao.gating.input_moments import AllInputMoments, InputMoments
from sfao.optim._consolidation.inputs import gather_inputs

LAYERS = {
    "linear": (lambda bias: nn.Linear(6, 3, bias=bias), (6,)),
    "wide": (lambda bias: nn.Linear(40, 3, bias=bias), (40,)),
    "conv": (lambda bias: nn.Conv2d(2, 4, 3, padding=1, bias=bias), (2, 7, 7)),
    "strided": (
        lambda bias: nn.Conv2d(2, 4, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2), bias=bias),
        (2, 7, 7),
    ),
    "grouped": (lambda bias: nn.Conv2d(4, 4, 3, groups=2, bias=bias), (4, 7, 7)),
}


def find_moment(found: InputMoments, width: int) -> Tensor:
    values, axes = found.find_axes(torch.empty(0, width))
    return axes.T @ (values[:, None] * axes)


def gather(model: nn.Module, x: Tensor) -> dict[Tensor, InputMoments]:
    weights = {
        module.weight: module.bias is not None
        for module in model.modules()
        if isinstance(module, nn.Linear | nn.Conv2d)
    }
    examples = [(one, torch.zeros(1)) for one in x.split(1)]
    seen = gather_inputs(model, examples, weights, torch.Generator(), AllInputMoments)
    found, others = seen.moments, seen.others
    assert not others
    return found


def unfold(layer: nn.Module, x: Tensor) -> Tensor:
    """The inputs of a layer, or its patches, as rows."""
    if isinstance(layer, nn.Linear):
        rows = x
    else:
        patches = functional.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        rows = patches.unflatten(1, (layer.groups, -1)).permute(0, 1, 3, 2).flatten(0, 2)
    return rows if layer.bias is None else torch.cat([rows, torch.ones(len(rows), 1)], 1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS)
def test_moments_are_those_of_all_inputs(make, shape, bias):
    torch.manual_seed(0)
    layer, x = make(bias), torch.randn(70, *shape)  # more than go through the model together
    rows = unfold(layer, x).double()
    found = gather(layer, x)[layer.weight]
    assert torch.allclose(find_moment(found, rows.shape[1]), rows.T @ rows / 70, rtol=0, atol=1e-12 * len(rows))


@pytest.mark.parametrize("count", [3, 30], ids=["fewer than entries", "more"])
def test_small_moments_are_found_where_products_in_float32_would_hide_them(count):
    torch.manual_seed(0)
    layer = nn.Linear(8, 2, bias=False)
    x = torch.randn(count, 8)
    x[:, 0] *= 1e-5
    x[:, 1:] = x[:, 1:] @ torch.randn(7, 1) @ torch.randn(1, 7)
    values, _ = gather(layer, x)[layer.weight].find_axes(torch.empty(0, 8))
    assert int((values > 1e-12 * values[0]).sum()) == 2


def test_none_is_left_out_and_nothing_is_drawn(monkeypatch):
    monkeypatch.setattr("sfao.gating.input_moments.MOST_NARROW", 8)
    monkeypatch.setattr("sfao.gating.input_moments.MOST_WIDE", 8)
    layer, x = nn.Conv2d(2, 4, 3), torch.randn(5, 2, 7, 7)
    rows = unfold(layer, x).double()
    examples = [(one, torch.zeros(1)) for one in x.split(1)]
    generator = torch.Generator()
    before = generator.get_state()
    found = gather_inputs(layer, examples, {layer.weight: True}, generator, AllInputMoments).moments
    assert torch.equal(generator.get_state(), before)
    assert torch.allclose(find_moment(found[layer.weight], 19), rows.T @ rows / 5)
    some = gather_inputs(layer, examples, {layer.weight: True}, generator).moments
    assert not torch.allclose(find_moment(some[layer.weight], 19), rows.T @ rows / 5)


def test_the_model_is_in_eval_mode_and_left_as_it_was():
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2)).train()
    model[2].running_mean.fill_(0.3)
    x = torch.randn(27, 6)
    found = gather(model, x)
    assert torch.equal(model[2].running_mean, torch.full((4,), 0.3))
    assert all(module.training for module in model.modules())
    model.eval()
    for layer, inputs in ((model[0], x), (model[3], model[:3](x).detach())):
        rows = unfold(layer, inputs).double()
        assert torch.allclose(find_moment(found[layer.weight], rows.shape[1]), rows.T @ rows / 27, atol=1e-5)
