"""The models: outputs, gradients, known values, and inputs that they refuse."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from sfao.lab.models import build_model, mlp, reinitialize, wide_resnet
from sfao.lab.models.wide_resnet import Block

SHAPE = (3, 24, 24)
BACKBONES = [("alexnet", {"hidden": 32}), ("resnet-18", {"width": 4}), ("vit", {"dim": 16, "depth": 2, "heads": 2})]


@pytest.mark.parametrize(("name", "sizes"), BACKBONES)
def test_every_parameter_is_trained(name, sizes):
    model = build_model(name, SHAPE, 5, seed=0, **sizes)
    outputs = model(torch.randn(6, *SHAPE))
    assert outputs.shape == (6, 5)
    cross_entropy(outputs, torch.arange(6) % 5).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize(("name", "sizes"), BACKBONES)
def test_fresh_weights_depend_on_the_seed_alone(name, sizes):
    model = build_model(name, SHAPE, 2, seed=0, **sizes)
    trained = {key: value + 1 for key, value in model.state_dict().items()}
    model.load_state_dict(trained)
    reinitialize(model, seed=7)
    once = {key: value.clone() for key, value in model.state_dict().items()}
    assert not any(torch.equal(once[name], trained[name]) for name, _ in model.named_parameters())
    reinitialize(model, seed=7)
    assert all(torch.equal(value, once[key]) for key, value in model.state_dict().items())


def test_alexnet_has_the_layers_of_the_gpm_authors():
    """Their printed sizes: 3 convolutions of 4, 3 and 2, then 1024 -> 2048 -> 2048, nowhere a bias."""
    model = build_model("alexnet", (3, 32, 32), 100, seed=0)
    shapes = [tuple(p.shape) for name, p in model.named_parameters() if "bn" not in name]
    assert shapes == [(64, 3, 4, 4), (128, 64, 3, 3), (256, 128, 2, 2), (2048, 1024), (2048, 2048), (100, 2048)]


def test_a_resnet_block_with_zero_convolutions_is_its_shortcut():
    model = build_model("resnet-18", SHAPE, 2, seed=0, width=4).eval()
    block = model.stages[0][1]
    torch.nn.init.zeros_(block.bn2.weight)
    inputs = torch.rand(2, 4, 6, 6)
    assert torch.equal(block(inputs), inputs)


def test_a_vit_block_attends_to_all_patches():
    model = build_model("vit", SHAPE, 2, seed=0, dim=16, depth=1, heads=2)
    tokens = torch.randn(1, 9, 16, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.blocks(tokens)[0, 0].sum(), tokens)
    assert gradient.any(2).all()


def test_attention_is_that_of_torch():
    torch.manual_seed(0)
    block = build_model("vit", SHAPE, 2, seed=0, dim=16, depth=1, heads=4).blocks[0]
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    theirs.in_proj_weight, theirs.in_proj_bias = block.qkv.weight, block.qkv.bias
    theirs.out_proj.weight, theirs.out_proj.bias = block.out.weight, block.out.bias
    tokens = torch.randn(3, 7, 16)
    normed = block.norm1(tokens)
    expected = tokens + theirs(normed, normed, normed, need_weights=False)[0]
    expected = expected + block.mlp(block.norm2(expected))
    torch.testing.assert_close(block(tokens), expected)


@pytest.mark.parametrize(
    ("name", "shape", "sizes", "message"),
    [
        ("cnn", (1, 3, 8), {}, "`input_shape` must be at least 4x4 pixels for two poolings, got 3x8"),
        ("cnn", SHAPE, {"fc": 0}, "`fc` must be a whole number of at least 1, got 0"),
        ("wrn-28-10", SHAPE, {"dropout": 1}, r"`dropout` must be in \[0, 1\), got 1"),
        ("alexnet", (1, 16, 16), {}, "must be square and at least 22x22 pixels for alexnet, got 16x16"),
        ("resnet-18", SHAPE, {"width": 0}, "`width` must be a whole number of at least 1, got 0"),
        ("vit", (3, 30, 30), {}, "`patch` must divide the sides of the images, 30x30, got 4"),
        ("vit", SHAPE, {"dim": 30, "heads": 4}, "`heads` must divide `dim`, 30, got 4"),
    ],
)
def test_what_does_not_fit_is_refused(name, shape, sizes, message):
    with pytest.raises(ValueError, match=message):
        build_model(name, shape, 2, seed=0, **sizes)


@given(hidden=st.lists(st.integers(1, 6), max_size=3), outputs=st.integers(1, 5), batch=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_hidden_sizes_in_order_between_pixels_and_outputs(hidden, outputs, batch):
    model = mlp((1, 2, 3), outputs, hidden)
    linear = [(layer.in_features, layer.out_features) for layer in model if isinstance(layer, nn.Linear)]
    assert linear == list(zip([6, *hidden], [*hidden, outputs], strict=True))
    assert model(torch.zeros(batch, 1, 2, 3)).shape == (batch, outputs)


@pytest.mark.parametrize("hidden", [0, [8, 0], [2.5], "8", {"a": 8}])
def test_sizes_that_are_no_counts_are_refused(hidden):
    with pytest.raises(ValueError, match="`hidden` must be a whole number of at least 1, got"):
        mlp((1, 2, 2), 2, hidden)


@pytest.mark.parametrize(("depth", "widen"), [(10, 2), (16, 2), (28, 10)])
def test_depth_counts_the_convolutions(depth, widen):
    with torch.device("meta"):
        model = wide_resnet((3, 32, 32), 10, depth=depth, widen=widen)
    assert sum(isinstance(module, nn.Conv2d) for module in model.modules()) == depth


def test_a_block_is_its_shortcut_when_its_last_convolution_is_zero():
    same, wider = Block(4, 4, stride=1, dropout=0), Block(4, 6, stride=2, dropout=0)
    inputs = torch.randn(2, 4, 6, 6)
    for block in (same, wider):
        nn.init.zeros_(block.conv2.weight)
    assert torch.equal(same(inputs), inputs)
    activated = functional.relu(wider.norm1(inputs))
    assert torch.allclose(wider(inputs), wider.shortcut(activated))


def test_dropout_is_off_by_default_and_random_when_on():
    inputs = torch.randn(2, 3, 8, 8)
    plain = wide_resnet((3, 8, 8), 2, depth=10, widen=1)
    assert torch.equal(plain(inputs), plain(inputs))
    dropping = wide_resnet((3, 8, 8), 2, depth=10, widen=1, dropout=0.5)
    assert not torch.equal(dropping(inputs), dropping(inputs))
