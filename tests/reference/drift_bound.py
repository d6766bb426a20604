"""The reference twin of DriftBound: its definition, in float64, for one layer.

The layer is a matrix W (rows x width), its bias the last column; the inputs of a task are the rows x of a matrix X
(examples x width), whose last column is then ones. With t tasks remembered, and W* the weights after the last of them,
W must satisfy

    E |(W - W*) x|^2  <=  (tolerance^2 / t) E |W* x|^2,

where E is the mean over the examples of a task, summed over tasks. Nothing is truncated: A = E x x' has its full rank.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

BISECTIONS = 200


def sum_moments(inputs: Sequence[Tensor]) -> Tensor:
    """Return A, the sum over tasks of the mean over examples of x x'."""
    return sum((rows.double().T @ rows.double() / len(rows) for rows in inputs), torch.zeros(()).double())


def measure_energy(weights: Tensor, inputs: Sequence[Tensor]) -> float:
    """Return E |W x|^2: a mean over the examples of each task, summed over tasks."""
    return sum(float((rows.double() @ weights.double().T).square().sum(1).mean()) for rows in inputs)


def drift(weights: Tensor, anchor: Tensor, inputs: Sequence[Tensor]) -> float:
    """Return sqrt(E |(W - W*) x|^2 / E |W* x|^2), the relative change of the outputs; `anchor` is W*."""
    moved = weights.double() - anchor.double()
    return float((measure_energy(moved, inputs) / measure_energy(anchor, inputs)) ** 0.5)


def project(weights: Tensor, anchor: Tensor, inputs: Sequence[Tensor], tolerance: float) -> Tensor:
    """Return the nearest weights, in the Frobenius norm, whose drift is at most tolerance / sqrt(t).

    With D = W - W*, that is W* + D (I + mu A)^-1 for the smallest mu >= 0 that satisfies the bound. The drift falls
    with mu, so bisection finds it.

    Args:
        weights: W (rows x width).
        anchor: W*, the weights after the last task.
        inputs: for each of the t tasks its input rows (examples x width).
        tolerance: the allowed drift after one task.
    """
    weights, anchor = weights.double(), anchor.double()
    bound = tolerance / len(inputs) ** 0.5
    if drift(weights, anchor, inputs) <= bound:
        return weights
    moments = sum_moments(inputs)
    identity = torch.eye(len(moments), dtype=torch.float64)

    def shrink(mu: float) -> Tensor:
        moved: Tensor = torch.linalg.solve(identity + mu * moments, weights - anchor, left=False)
        return anchor + moved

    low, high = 0.0, 1.0
    while drift(shrink(high), anchor, inputs) > bound:
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if drift(shrink(middle), anchor, inputs) > bound else (low, middle)
    return shrink(high)
