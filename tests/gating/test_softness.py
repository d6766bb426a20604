"""Softness: the share that is kept, its two ends, and the length that is given back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.gating.softness import choose_scales, choose_shares, find_factors


def column(*values):
    return torch.tensor(values, dtype=torch.float64)


def random_case(seed, layers=3, axes=12):
    generator = torch.Generator().manual_seed(seed)
    energies = torch.rand(layers, axes, generator=generator, dtype=torch.float64)
    importances = torch.exp(4 * torch.randn(layers, axes, generator=generator, dtype=torch.float64))
    outside = torch.rand(layers, generator=generator, dtype=torch.float64)
    return energies, outside, importances


def kept(energies, outside, factors):
    return (((energies * factors**2).sum(1) + outside) / (energies.sum(1) + outside)).sqrt()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 0.99))
def test_at_least_the_share_is_kept_and_not_much_more_unless_that_is_free(seed, share):
    energies, outside, importances = random_case(seed)
    shares = torch.full_like(outside, share)
    factors = find_factors(energies, outside, importances, shares)
    hardest = find_factors(energies, outside, importances, shares * 0 + 1e-9)
    left = kept(energies, outside, factors)
    assert (left >= share - 0.003).all()
    is_free = kept(energies, outside, hardest) >= share
    assert (is_free | (left <= share + 0.003)).all()
    assert torch.equal(factors[is_free], hardest[is_free])


def test_more_important_axes_lose_more():
    energies, outside, importances = random_case(0)
    factors = find_factors(energies, outside, importances, torch.full_like(outside, 0.7))
    for of_layer, importance in zip(factors, importances, strict=True):
        assert (of_layer[importance.argsort()].diff() <= 0).all()


def test_the_scale_of_a_gradient_does_not_matter():
    energies, outside, importances = random_case(1)
    shares = torch.full_like(outside, 0.5)
    one = find_factors(energies, outside, importances, shares)
    other = find_factors(energies * 1e20, outside * 1e20, importances, shares)
    torch.testing.assert_close(one, other)


def test_a_share_of_one_keeps_everything_and_of_zero_nothing_along_the_axes():
    energies, outside, importances = random_case(2)
    importances[:, 0] = 0  # an axis that is not there
    ones = torch.ones_like(outside)
    assert (find_factors(energies, outside, importances, ones) == 1).all()
    hard = find_factors(energies, outside, importances, ones * 0)
    assert (hard[:, 0] == 1).all()
    assert (hard[:, 1:] == 0).all()


def test_a_gradient_of_zero_is_no_accident():
    importances = torch.ones(1, 3, dtype=torch.float64)
    factors = find_factors(torch.zeros(1, 3, dtype=torch.float64), column(0.0), importances, column(0.6))
    assert torch.isfinite(factors).all()


def test_the_share_falls_with_tasks_and_with_drift():
    nowhere, keep, tolerance = column(*[1 / 16] * 4), column(*[0.6] * 4), column(*[0.1] * 4)
    shares = choose_shares(keep, column(1, 4, 1, 1), nowhere, column(0, 0, 0.1, 0.2), tolerance)
    torch.testing.assert_close(shares, column(0.6, 0.6**2, 0.6**2, 0.6**5))


def test_the_share_falls_on_the_way():
    keep, once, still, tolerance = column(*[0.6] * 3), column(1, 1, 1), column(0, 0, 0), column(1, 1, 1)
    shares = choose_shares(keep, once, column(0, 1, 16), still, tolerance)
    torch.testing.assert_close(shares, column(0.6**0.7, 0.6**1.3, 0.6**1.9))


@pytest.mark.parametrize(
    ("left", "restore", "scale"),
    [(0.8, 2.0, 1.25), (0.25, 2.0, 2.0), (0.25, 1.0, 1.0), (1.0, 2.0, 1.0), (1e-9, 2.0, 0.0)],
)
def test_the_length_is_given_back_up_to_a_limit_and_never_to_nothing(left, restore, scale):
    assert float(choose_scales(column(left), column(restore))) == pytest.approx(scale)
