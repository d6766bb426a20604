import pytest
import torch
from torch import nn
from torch.nn import functional

from sfao.lab.models import wide_resnet, wrn_28_10
from sfao.lab.models.wide_resnet import Block


@pytest.mark.parametrize("size", [32, 64])
def test_images_of_any_size_give_one_logit_an_output(size):
    model = wide_resnet((3, size, size), 4, depth=10, widen=1)
    assert model(torch.randn(2, 3, size, size)).shape == (2, 4)


def test_the_groups_halve_the_image_twice():
    model = wide_resnet((3, 32, 32), 4, depth=10, widen=2).eval()
    images = model.stem(torch.randn(1, 3, 32, 32))
    shapes = [tuple((images := group(images)).shape[1:]) for group in (model.group1, model.group2, model.group3)]
    assert shapes == [(32, 32, 32), (64, 16, 16), (128, 8, 8)]


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


@pytest.mark.parametrize("depth", [4, 9, 27, 10.0])
def test_depths_that_do_not_divide_are_refused(depth):
    with pytest.raises(ValueError, match=r"`depth` must be 6 n \+ 4 .*got"):
        wide_resnet((3, 32, 32), 2, depth=depth, widen=1)


def test_width_and_dropout_follow_their_rules():
    with pytest.raises(ValueError, match="`widen` must be a whole number of at least 1, got 0"):
        wide_resnet((3, 32, 32), 2, depth=10, widen=0)
    with pytest.raises(ValueError, match=r"`dropout` must be in \[0, 1\), got 1"):
        wrn_28_10((3, 32, 32), 2, dropout=1)
    with pytest.raises(ValueError, match=r"`dropout` must be in \[0, 1\), got 'much'"):
        wrn_28_10((3, 32, 32), 2, dropout="much")
