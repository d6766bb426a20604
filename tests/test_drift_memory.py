"""The memory of a layer, and the projection of all layers."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.bounded_layers import find_layers
from sfao.capture import Inputs
from sfao.drift_memory import LayerMemory, Moments, join_calls, remember_task, row_energies
from sfao.drift_projection import Projection
from tests.bounding import make_batches, make_bound, make_mlp, train


def make_rows(seed: int, count: int = 9, width: int = 6) -> Tensor:
    return torch.randn(1, count, width, generator=torch.Generator().manual_seed(seed)) / count**0.5


def given(*calls: Tensor) -> Inputs:
    return Inputs([[rows] for rows in calls], [1] * len(calls))


def full(moments: Moments) -> Tensor:
    axes = moments.axes.double()
    return axes * (moments.values - moments.tail[:, None])[:, None, :] @ axes.mT + moments.tail * torch.eye(
        axes.shape[1]
    )


def remember(layer: nn.Module, *calls: Tensor, before: LayerMemory | None = None) -> LayerMemory:
    (found,) = find_layers(layer).values()
    return remember_task(found, before, None, given(*calls), 1.0)


@torch.no_grad()
def test_tasks_are_summed_with_the_last_weights() -> None:
    layer, first, second = nn.Linear(5, 3), make_rows(0), make_rows(1)
    memory = remember(layer, first)
    layer.weight.mul_(2)
    memory = remember(layer, second, before=memory)
    assert memory.tasks == 2
    torch.testing.assert_close(full(memory.moments)[0].float(), first[0].T @ first[0] + second[0].T @ second[0])
    weights = torch.cat([layer.weight, layer.bias[:, None]], 1)[None]
    energy = row_energies(weights, first) + row_energies(weights, second)
    torch.testing.assert_close(memory.energy, energy, rtol=1e-5, atol=0)
    assert torch.equal(memory.anchor, weights)


@torch.no_grad()
@pytest.mark.parametrize("has_past", [False, True])
def test_consolidations_without_a_step_are_averaged(has_past: bool) -> None:
    layer = nn.Linear(5, 3)
    (found,) = find_layers(layer).values()
    before = remember(layer, make_rows(9)) if has_past else None
    memory, rows = None, [make_rows(seed) for seed in range(3)]
    for n in range(3):
        memory = remember_task(found, before, memory, given(rows[n]), 1.0)
    together = remember(layer, torch.cat(rows, 1) / 3**0.5, before=before)
    torch.testing.assert_close(full(memory.moments), full(together.moments), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(memory.energy, together.energy, rtol=1e-5, atol=1e-5)
    assert memory.tasks == together.tasks == 1 + has_past


@torch.no_grad()
def test_a_bound_on_all_calls_bounds_each() -> None:
    weights, calls = torch.randn(1, 3, 6), [make_rows(0), 10 * make_rows(1), 0.01 * make_rows(2)]
    rows, energy = join_calls(weights, calls)
    moved = torch.randn(1, 3, 6)
    total = row_energies(moved, rows).sum() / energy.sum()
    for call in calls:
        assert row_energies(moved, call).sum() / row_energies(weights, call).sum() <= total * 1.001
    zeros, energy = join_calls(weights, [torch.zeros(1, 4, 6), make_rows(0)])
    assert torch.isfinite(zeros).all()
    assert torch.isfinite(energy).all()


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


@torch.no_grad()
def test_zero_outputs_allow_some_drift() -> None:
    layer = nn.Linear(5, 3)
    for parameter in layer.parameters():
        parameter.zero_()
    memory = remember(layer, make_rows(0))
    allowed = memory.allowance(0.1, memory.used)
    initialized = row_energies(torch.empty(1, 3, 6).uniform_(-(6**-0.5), 6**-0.5), make_rows(0)).sum()
    assert 1e-5 < allowed < 0.01 * initialized


@torch.no_grad()
def test_projection_leaves_layers_inside_alone() -> None:
    model = make_mlp()
    layers = find_layers(model)
    memory = {
        name: remember_task(layer, None, None, given(make_rows(0, width=layer.read().shape[2])), 1.0)
        for name, layer in layers.items()
    }
    projection = Projection(layers, memory, {"0": 0.1, "2": 0.5}, {}, ())
    model[0].weight.add_(1.0)
    model[2].weight.add_(1e-3)
    inside = model[2].weight.clone()
    for layer, removed in projection.find_excess():
        layer.subtract(removed)
    assert projection.acted.tolist() == [1, 0]
    assert torch.equal(model[2].weight, inside)
    torch.testing.assert_close(projection.measure()[0], projection.allowed[0], rtol=1e-3, atol=0)
    assert memory["0"].bytes >= sum(p.nbytes for p in model[0].parameters())


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
