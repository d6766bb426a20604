"""Factors of many matrices at once."""

import pytest
import torch
from torch import Tensor

from sfao.gating._block import FullStack, OuterStack
from sfao.gating._layout import Layout
from sfao.gating._low_rank import low_rank
from sfao.gating.factored import _balance

LAYOUT = Layout(90, (99, 1))


def decaying(number: int, rows: int, columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(number, rows, columns, generator=generator) * torch.logspace(0, -3, columns)


def best(matrices: Tensor, rank: int) -> Tensor:
    left, values, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    return left[..., :rank] * values[..., None, :rank] @ right[..., :rank, :]


@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (90, 100), (3, 200), (200, 3)])
@pytest.mark.parametrize("rank", [1, 3])
def test_each_of_many_matrices_gets_its_best_factors(shape, rank):
    matrices = decaying(5, *shape)
    left, right = low_rank(matrices, rank)
    assert left.shape == (5, rank, shape[0])
    assert right.shape == (5, rank, shape[1])
    gaps = (left.mT @ right - matrices).flatten(1).norm(dim=1)
    least = (best(matrices, rank) - matrices).flatten(1).norm(dim=1)
    assert (gaps <= 1.01 * least + 1e-5).all()
    alone = low_rank(matrices[2], rank)
    assert torch.allclose(alone[0].mT @ alone[1], left[2].mT @ right[2], atol=1e-4)


def test_balanced_factors_have_one_length_and_the_same_product():
    left, right = 1e4 * torch.randn(3, 2, 5), 1e-4 * torch.randn(3, 2, 7)
    left[1, 0] = 0
    scales = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    one, two = _balance(left, right, scales)
    assert torch.allclose(one.norm(dim=2)[left.norm(dim=2) > 0], two.norm(dim=2)[left.norm(dim=2) > 0])
    assert torch.allclose(one.mT @ two, left.mT @ right * scales.float().view(-1, 1, 1), rtol=1e-4)


@pytest.mark.parametrize("examples", [1, 2, 7])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_outer_products_stand_for_their_sum(examples, rank):
    deltas, inputs, ones = torch.randn(4, examples, 90), torch.randn(4, examples, 99), torch.ones(4, examples, 1)
    outer, full = OuterStack.make(deltas, [inputs, ones]), FullStack([deltas.mT @ inputs, deltas.mT @ ones])
    assert torch.allclose(outer.squares(), full.squares(), rtol=1e-5)
    scales = torch.rand(4, dtype=torch.float64)
    for one, two in zip(outer.matrices(scales), full.matrices(scales), strict=True):
        assert torch.allclose(one, two, atol=1e-4)
    (left, right), (left_too, right_too) = (stack.factors(LAYOUT, rank) for stack in (outer, full))
    assert left.shape == (4, rank, 90)
    assert torch.allclose(left.mT @ right, left_too.mT @ right_too, atol=1e-3)
    some = torch.tensor([3, 1])
    assert torch.allclose(outer.select(some).squares(), full.squares()[some], rtol=1e-5)


def test_examples_that_repeat_lose_nothing():
    """The Gram matrix of the outer products is then singular."""
    delta, input_ = torch.randn(2, 1, 90), torch.randn(2, 1, 100)
    outer = OuterStack.make(delta.repeat(1, 6, 1), [input_.repeat(1, 6, 1)])
    left, right = outer.factors(Layout(90, (100,)), 2)
    assert torch.allclose(left.mT @ right, 6 * delta.mT @ input_, atol=1e-4)
