"""The quadratic programme over f >= 0, against nonnegative least squares."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from sfao.gating._nonnegative import minimise_nonnegative
from sfao.methods.gem import solve_dual


def problem(count: int, seed: int, offset: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit rows, with something in common if `offset` is not 0, and a vector."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 2 * count + 4, generator=generator, dtype=torch.float64) + offset
    vector = torch.randn(2 * count + 4, generator=generator, dtype=torch.float64)
    return rows / rows.norm(dim=1, keepdim=True), vector


@given(st.integers(1, 40), st.integers(0, 10**6), st.sampled_from([0.0, 1.0]))
def test_the_least_squares_solution_to_twelve_digits(count, seed, offset):
    rows, vector = problem(count, seed, offset)
    found = minimise_nonnegative(rows @ rows.T, rows @ vector)
    expected, _ = nnls(rows.T.numpy(), -vector.numpy())  # |A f - b|^2 / 2 with A = rows', b = -vector
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12 * max(1.0, np.abs(expected).max()))


@given(st.integers(1, 40), st.integers(0, 10**6))
def test_nothing_pulls_and_nothing_pushes_where_the_force_is_zero(count, seed):
    rows, vector = problem(count, seed)
    gram, linear = rows @ rows.T, rows @ vector
    forces = minimise_nonnegative(gram, linear)
    slacks = gram @ forces + linear
    assert (forces >= 0).all()
    assert (slacks >= -1e-11).all()
    assert (forces * slacks).abs().max() <= 1e-11


@pytest.mark.parametrize("margin", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_the_dual_of_gem_is_least_squares_from_its_margin_on(margin, count):
    rows, vector = problem(count, seed=count)
    rows = rows * torch.logspace(-2, 2, count, dtype=torch.float64)[:, None]
    least = torch.full((count,), margin, dtype=torch.float64)
    shift, _ = nnls(rows.T.numpy(), -(vector + least @ rows).numpy())
    update = vector + solve_dual(rows @ rows.T, rows @ vector, margin) @ rows
    expected = vector + (least + torch.from_numpy(shift)) @ rows
    assert torch.dist(update, expected) <= 1e-12 * max(float(expected.norm()), float(vector.norm()))


def test_no_force_where_everything_agrees():
    assert not minimise_nonnegative(torch.eye(3).double(), torch.tensor([0.0, 1.0, 2.0]).double()).any()
