import pytest
import torch
from torch import nn
from torch.nn import functional

from sfao.lab.models import wide_resnet
from sfao.lab.models.wide_resnet import Block


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
