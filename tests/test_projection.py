"""Projections in terms of the Gram matrix, beside what they mean for the directions themselves."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.projection import PROJECTIONS, Cone, Sequential, Span, minimize_nonnegative

sizes = st.tuples(st.integers(1, 8), st.integers(1, 12), st.integers(0, 10**6))


def make(size):
    """Directions as rows, and a gradient."""
    count, width, seed = size
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, width, generator=generator, dtype=torch.float64)
    if count > 2:
        rows[-1] = 2 * rows[0]  # dependent
    return rows, torch.randn(width, generator=generator, dtype=torch.float64)


def project(kind, rows, gradient):
    projection = PROJECTIONS[kind](rows @ rows.T, list(range(len(rows))))
    dots = rows @ gradient
    weights = projection.weights(dots)
    update = gradient - weights @ rows
    removed = projection.removed_square(dots, weights)
    assert float(gradient @ gradient - update @ update) == pytest.approx(float(removed), abs=1e-8)
    return update


@given(sizes)
def test_span_leaves_nothing_along_any_direction(size):
    rows, gradient = make(size)
    update = project("span", rows, gradient)
    assert (rows @ update).abs().max() <= 1e-8 * rows.norm() * gradient.norm()
    assert torch.allclose(project("span", rows, update), update, atol=1e-10)
    # The removed part lies in the span.
    basis = torch.linalg.svd(rows, full_matrices=False)
    span = basis.Vh[1e-9 * basis.S.max() < basis.S]
    assert torch.allclose(span.T @ (span @ gradient), gradient - update, atol=1e-8)


@given(sizes)
def test_span_is_rank_revealing(size):
    rows, _ = make(size)
    assert Span(rows @ rows.T).rank == int(torch.linalg.matrix_rank(rows))


@given(sizes, st.randoms(use_true_random=False))
def test_sequential_subtracts_one_after_the_other_in_the_order_of_arrival(size, random):
    rows, gradient = make(size)
    arrivals = list(range(len(rows)))
    random.shuffle(arrivals)
    update = gradient.clone()
    for slot in sorted(range(len(rows)), key=arrivals.__getitem__):
        update -= rows[slot] * (rows[slot] @ update) / (rows[slot] @ rows[slot])
    weights = Sequential(rows @ rows.T, arrivals).weights(rows @ gradient)
    assert torch.allclose(gradient - weights @ rows, update, atol=1e-8)


@settings(deadline=None)
@given(sizes)
def test_cone_is_the_nearest_point_that_opposes_no_direction(size):
    rows, gradient = make(size)
    update = project("cone", rows, gradient)
    assert (rows @ update).min() >= -1e-6 * rows.norm() * gradient.norm()
    weights = Cone(rows @ rows.T).weights(rows @ gradient)
    assert weights.max() <= 0  # pushed along directions, never against them
    assert float((gradient - update) @ update) == pytest.approx(0, abs=1e-6 * float(gradient @ gradient) + 1e-9)


@given(st.integers(1, 12), st.integers(0, 10**6))
def test_nonnegative_minimum_satisfies_its_conditions(count, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, count + 2, generator=generator, dtype=torch.float64)
    gram, linear = rows @ rows.T + 1e-6 * torch.eye(count), torch.randn(count, generator=generator, dtype=torch.float64)
    forces = minimize_nonnegative(gram, linear)
    slacks = gram @ forces + linear
    assert forces.min() >= 0
    assert slacks.min() >= -1e-8
    assert float(forces @ slacks) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_directions_that_are_zero_here_constrain_nothing(kind):
    rows = torch.tensor([[1.0, 0, 0], [0, 0, 0]], dtype=torch.float64)
    assert project(kind, rows, torch.tensor([-2.0, 3, 0], dtype=torch.float64)).tolist() == pytest.approx(
        [0, 3, 0], abs=1e-9
    )
