"""Softening does the same to gradients of any size, and in a copy of the optimizer."""

import copy
import pickle

import pytest
import torch
from torch import nn

from sfao import SFAO, layer_groups


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 4))
    optimizer = SFAO(layer_groups(model), lr=0.0, axes=6)
    optimizer.consolidate(model, [(torch.randn(16, 12), torch.randint(0, 4, (16,))) for _ in range(3)])
    return model, optimizer


def soften(model, optimizer, scale=1.0):
    """Step with random gradients of this size; return what is left of them, at size 1."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.grad = scale * torch.randn(parameter.shape, generator=generator)
    optimizer.step()
    return [parameter.grad / scale for parameter in model.parameters()]


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e6, 1e15, 1e30])
def test_gradients_of_any_size_are_softened_alike(scale):
    one, other = soften(*make()), soften(*make(), scale)
    for left, right in zip(one, other, strict=True):
        torch.testing.assert_close(right, left, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["copy", "pickle"]
)
def test_a_copy_softens_by_what_it_sees_itself(again):
    model, optimizer = make()
    soften(model, optimizer)
    pair = again((model, optimizer))
    for parameter in model.parameters():
        parameter.grad.zero_()
    for left, right in zip(soften(*make()), soften(*pair), strict=True):
        assert torch.equal(left, right)
