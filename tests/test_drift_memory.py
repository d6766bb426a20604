"""The memory of a layer, and the projection of all layers."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.bounding import make_batches, make_bound, make_mlp, train


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
