"""The mathematics of the bound, next to its float64 twin."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.drift_memory import Moments, find_moments, row_energies
from sfao.drift_projection import excess_, find_shares, measure
from tests.bounding import make_batches, make_bound, make_mlp, train
from tests.reference.drift_bound import drift, project

sizes = st.integers(1, 6)
seeds = st.integers(0, 10**6)


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scaled(rows: Tensor) -> Tensor:
    """Return rows whose R'R is their second moment, as one group."""
    return rows[None] / len(rows) ** 0.5


def make_moments(rows: Tensor, share: float = 1.0, before: Moments | None = None) -> Moments:
    """Return the moments of rows, added to those before."""
    if before is None:
        return find_moments(rows, rows.new_zeros(len(rows), dtype=torch.float64), share)
    return find_moments(torch.cat([before.rows.to(rows.dtype), rows], 1), before.tail, share)


def full(moments: Moments) -> Tensor:
    """Return A of every group as a matrix."""
    axes, width = moments.axes.double(), moments.axes.shape[1]
    extra = (moments.values - moments.tail[:, None])[:, None, :]
    return axes * extra @ axes.mT + moments.tail[:, None, None] * torch.eye(width, dtype=torch.float64)


def pull_back(weights: Tensor, anchor: Tensor, moments: Moments, allowed: Tensor) -> Tensor:
    """Return the nearest allowed weights."""
    moved = (weights - anchor)[None]
    along, lengths = measure(moved, moments)
    spectrum = moments.spectrum[None]
    shares = find_shares(lengths * spectrum, spectrum, allowed.reshape(1, 1).clamp_min(1e-300))
    return weights - excess_(moved, along, moments, shares[0])[0]


@given(sizes, st.integers(1, 30), st.integers(1, 40), seeds, st.sampled_from([1e-3, 0.1, 1.0]))
def test_the_projection_is_the_twins(rows: int, width: int, examples: int, seed: int, tolerance: float) -> None:
    inputs = randn(examples, width, seed=seed)
    anchor, weights = randn(rows, width, seed=seed + 1), 3 * randn(rows, width, seed=seed + 2)
    moments = make_moments(scaled(inputs))
    energy = row_energies(anchor[None], scaled(inputs)).sum()
    found = pull_back(weights, anchor, moments, tolerance**2 * energy)
    assert drift(found, anchor, [inputs]) <= tolerance * (1 + 1e-4)
    torch.testing.assert_close(found, project(weights, anchor, [inputs], tolerance), rtol=1e-3, atol=1e-4)


@given(seeds, st.sampled_from([1e-15, 1e-3, 1.0, 1e15]), st.sampled_from([1e-6, 1.0, 1e6]))
def test_the_projection_follows_the_scale_of_weights_and_inputs(seed: int, size: float, spread: float) -> None:
    inputs, anchor = spread * randn(9, 5, seed=seed), size * randn(3, 5, seed=seed + 1)
    weights = anchor + size * randn(3, 5, seed=seed + 2)
    allowed = 0.01 * row_energies(anchor[None], scaled(inputs)).sum()
    found = pull_back(weights, anchor, make_moments(scaled(inputs)), allowed)
    assert drift(found, anchor, [inputs]) == pytest.approx(0.1, rel=1e-3)


def test_far_outside_the_drift_is_still_exact() -> None:
    inputs, anchor = randn(50, 20, seed=0) * torch.logspace(-4, 2, 20), randn(3, 20, seed=1)
    moments = make_moments(scaled(inputs))
    allowed = 1e-4 * row_energies(anchor[None], scaled(inputs)).sum()
    for size in (1.0, 1e3, 1e6):
        found = pull_back(anchor + size * randn(3, 20, seed=2), anchor, moments, allowed)
        assert drift(found, anchor, [inputs]) == pytest.approx(0.01, rel=1e-2)


@given(st.integers(1, 3), st.integers(1, 24), st.integers(1, 30), seeds)
def test_moments_of_two_tasks_add_up(groups: int, width: int, examples: int, seed: int) -> None:
    first, second = (randn(groups, examples, width, seed=seed + n) for n in range(2))
    moments = make_moments(second, before=make_moments(first))
    torch.testing.assert_close(full(moments), first.mT @ first + second.mT @ second, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(moments.trace, first.square().sum((1, 2)) + second.square().sum((1, 2)))


@pytest.mark.parametrize("examples", [20, 100])
def test_few_axes_keep_the_trace(examples: int) -> None:
    rows = scaled(randn(examples, 40, seed=0) * torch.logspace(0, -3, 40))
    moments = make_moments(rows, 0.9, make_moments(rows, 0.9))
    kept = moments.axes.shape[2]
    assert kept < 20
    assert moments.values.sum() >= 0.9 * moments.trace.sum()
    torch.testing.assert_close(moments.trace, 2 * rows.square().sum((1, 2)))
    torch.testing.assert_close(
        moments.axes[0].mT @ moments.axes[0], torch.eye(kept).to(moments.axes), atol=1e-5, rtol=0
    )


def test_zero_inputs_and_zero_drift_change_nothing() -> None:
    weights, anchor = randn(3, 5, seed=0), randn(3, 5, seed=1)
    nothing = make_moments(torch.zeros(1, 4, 5))
    assert torch.equal(pull_back(weights, anchor, nothing, torch.zeros(()).double()), weights)
    moments = make_moments(scaled(randn(6, 5, seed=2)))
    assert torch.equal(pull_back(anchor, anchor, moments, torch.ones(()).double()), anchor)


# -- All layers of a model --------------------------------------------------------------------------------


class Tied(nn.Module):
    """An embedding and a head with the same weights, or two Linear layers."""

    def __init__(self, first: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.first, self.head = first, head
        self.head.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).flatten(1, -2).sum(1))


@pytest.mark.parametrize("kind", ["embedding", "linear"])
def test_layers_with_the_same_weights_are_projected_one_after_the_other(kind: str) -> None:
    if kind == "embedding":
        model, inputs = Tied(nn.Embedding(9, 5), nn.Linear(5, 9, bias=False)), torch.randint(9, (3, 8, 3))
    else:
        model, inputs = Tied(nn.Linear(9, 9, bias=False), nn.Linear(9, 9, bias=False)), torch.randn(3, 8, 1, 9)
    bound, optimizer = make_bound(model, lr=5.0, every=1)
    batches = [(x, torch.randint(9, (8,))) for x in inputs]
    bound.consolidate(batches, cross_entropy)
    train(model, optimizer, batches)
    telemetry = bound.telemetry()
    assert telemetry["acted"] > 2
    for name in ("first", "head"):
        assert telemetry[f"layers/{name}/drift"] <= 1.2 * telemetry[f"layers/{name}/allowed"]


def test_unused_rows_are_free_until_a_gradient_mixes() -> None:
    model, batches = make_mlp(), make_batches(8, 5)
    bound, optimizer = make_bound(model, lr=2.0, every=1, examples=24)
    two = lambda x, y: cross_entropy(x[:, :2], y % 2)  # noqa: E731
    others = lambda x, y: cross_entropy(x[:, 2:], y % 2)  # noqa: E731
    bound.consolidate(batches, two)
    start = model[2].weight.detach().clone()
    train(model, optimizer, batches, 10, others)
    moved = (model[2].weight - start).norm(dim=1)
    assert moved[:2].max() == 0
    assert moved[2:].min() > 0.5
    assert bound.state_dict()["mixed"] == []
    train(model, optimizer, batches, 1)
    assert bound.state_dict()["mixed"] == ["2"]
    assert (model[2].weight - start)[2:].norm() < moved[2:].norm() / 2
    assert bound.telemetry()["layers/2/drift"] <= 0.1001
