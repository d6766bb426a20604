"""The twin of DriftBound against its definition and a generic optimizer."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from tests.reference.drift_bound import drift, project, sum_moments


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_inputs(tasks: int, width: int = 4, examples: int = 7) -> list[Tensor]:
    """Return input rows of some tasks, with a last column of ones; the tasks have different numbers of examples."""
    scales = torch.linspace(0.2, 2.0, width - 1, dtype=torch.float64)
    return [
        torch.cat([scales * randn(examples + task, width - 1, seed=task), torch.ones(examples + task, 1)], 1)
        for task in range(tasks)
    ]


def minimize_distance(weights: Tensor, anchor: Tensor, inputs: list[Tensor], tolerance: float) -> Tensor:
    """Return the nearest allowed weights according to SLSQP."""
    moments = sum_moments(inputs).numpy()
    start, centre = weights.numpy().ravel(), anchor.numpy()
    energy = float(np.einsum("ij,jk,ik", centre, moments, centre))

    def room(flat: np.ndarray) -> float:
        moved = flat.reshape(centre.shape) - centre
        return float(tolerance**2 / len(inputs) * energy - np.einsum("ij,jk,ik", moved, moments, moved))

    def slope(flat: np.ndarray) -> np.ndarray:
        return -2 * ((flat.reshape(centre.shape) - centre) @ moments).ravel()

    found = minimize(
        lambda flat: float(np.square(flat - start).sum()),
        centre.ravel(),
        jac=lambda flat: 2 * (flat - start),
        constraints={"type": "ineq", "fun": room, "jac": slope},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert found.success, found.message
    return torch.from_numpy(found.x).view_as(weights)


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize("tolerance", [0.01, 0.1, 0.5])
def test_the_projection_is_the_nearest_allowed_point(tasks: int, tolerance: float) -> None:
    inputs, anchor = make_inputs(tasks), randn(3, 4, seed=10)
    weights = anchor + randn(3, 4, seed=11)
    found = project(weights, anchor, inputs, tolerance)
    expected = minimize_distance(weights, anchor, inputs, tolerance)
    assert drift(found, anchor, inputs) == pytest.approx(tolerance / tasks**0.5, rel=1e-9)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


def test_inside_nothing_changes() -> None:
    inputs, anchor = make_inputs(2), randn(3, 4, seed=10)
    weights = anchor + 0.01 * randn(3, 4, seed=11)
    assert 0 < drift(weights, anchor, inputs) < 0.1 / 2**0.5
    assert torch.equal(project(weights, anchor, inputs, 0.1), weights)
    assert torch.equal(project(anchor, anchor, inputs, 0.1), anchor)


def test_directions_without_inputs_are_free() -> None:
    """Fewer examples than columns: what no past input sees may move freely."""
    inputs, anchor = [randn(2, 5, seed=0)], randn(3, 5, seed=1)
    _, _, right = torch.linalg.svd(inputs[0])
    weights = anchor + 3 * randn(3, 3, seed=2) @ right[2:]
    assert drift(weights, anchor, inputs) < 1e-12
    assert torch.equal(project(weights, anchor, inputs, 0.1), weights)
    moved = project(weights + randn(3, 2, seed=3) @ right[:2], anchor, inputs, 0.1)
    torch.testing.assert_close((moved - anchor) @ right[2:].T, (weights - anchor) @ right[2:].T)
