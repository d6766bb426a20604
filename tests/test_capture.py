"""Inputs of layers on examples of a task, in models of many kinds."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.parametrizations import weight_norm
from torch.optim import SGD
from torch.utils.checkpoint import checkpoint

from sfao.batches import make_objective
from sfao.bounded_layers import find_layers
from sfao.capture import Inputs, capture_inputs
from sfao.drift_bound import DriftBound
from tests.bounding import consolidated, make_batches, make_bound, make_mlp, train


def capture(model: nn.Module, batches: Any, loss: Any = cross_entropy, examples: int = 99) -> dict[str, Inputs]:
    objective = make_objective(loss, None)
    return capture_inputs(model, find_layers(model), batches, objective, examples, torch.Generator().manual_seed(0))[0]


def test_moments_are_means_over_all_examples() -> None:
    model, batches = make_mlp(), [*make_batches(4, 5, count=2), *make_batches(3, 5, count=1)]
    (rows,) = capture(model, batches)["0"].rows()
    x = torch.cat([torch.cat([x, torch.ones(len(x), 1)], 1) for x, _ in batches])
    torch.testing.assert_close(rows[0].T @ rows[0], x.T @ x / len(x))


def test_nothing_is_left_on_the_model() -> None:
    model, batches = make_mlp(), make_batches(4, 5)
    model[1].eval()
    capture(model, batches)
    with pytest.raises(ZeroDivisionError):
        capture(model, batches, loss=lambda x, y: 1 / 0)
    assert [module.training for module in model.modules()] == [True, True, False, True]
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


class Keywords(nn.Module):
    """Takes mappings, calls its layers by keyword, and returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 5), nn.Linear(5, 4)

    def forward(self, ids: Tensor, labels: Tensor) -> SimpleNamespace:
        logits = self.head(input=self.embedding(input=ids).mean(1))
        return SimpleNamespace(loss=cross_entropy(logits, labels), logits=logits)


def test_mappings_and_keyword_calls() -> None:
    batches = [{"ids": torch.randint(9, (4, 3)), "labels": torch.randint(4, (4,))} for _ in range(3)]
    assert list(capture(Keywords(), batches, loss=None)) == ["embedding", "head"]
    bound, _ = make_bound(Keywords())
    assert bound.consolidate(batches) == 12


def test_a_bad_example_is_blamed_on_the_first_layer_that_sees_it() -> None:
    x, y = make_batches(4, 5)[0]
    x[2, 1] = float("nan")
    with pytest.raises(ValueError, match="inputs of layer '0' must be finite"):
        capture(make_mlp(), [(x, y)])
    with pytest.raises(ValueError, match="loss of a past task must be finite, got nan"):
        capture(make_mlp(), make_batches(4, 5), loss=lambda x, y: cross_entropy(x, y) * float("nan"))
    with pytest.raises(ValueError, match="at least one batch, got none"):
        capture(make_mlp(), [])


class Heads(nn.Module):
    """Returns the outputs of both heads and the features."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(5, 6)
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 4)) for _ in range(2))

    def forward(self, x: Tensor) -> list[Tensor]:
        features = self.trunk(x).relu()
        return [*(head(features) for head in self.heads), features]


def test_heads_of_other_tasks_are_left_out() -> None:
    found = capture(Heads(), make_batches(4, 5), loss=lambda outputs, y: cross_entropy(outputs[0], y))
    assert list(found) == ["trunk", "heads.0.0", "heads.0.2"]
    found = capture(Heads(), make_batches(4, 5), loss=lambda outputs, y: cross_entropy(outputs[0] + outputs[1], y))
    assert len(found) == 5


def test_a_loss_without_gradients_leaves_nothing_out() -> None:
    model, batches = make_mlp(), make_batches(4, 5)
    found = capture(model, batches, loss=lambda x, y: (x - 100).clamp_min(0).sum())
    assert list(found) == ["0", "2"]
    assert found["2"].used is None


def test_detached_features_count() -> None:
    class Detached(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return self[2](self[0](x).detach().relu())

    model = Detached(*make_mlp())
    assert list(capture(model, make_batches(4, 5))) == ["0", "2"]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing(use_reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = (
                nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh()),
                nn.Linear(4, 4),
            )

        def forward(self, x: Tensor) -> Tensor:
            x = x.requires_grad_(torch.is_grad_enabled())
            hidden = checkpoint(self.body, x, use_reentrant=use_reentrant)
            return hidden if not use_reentrant else self.head(hidden)

    model = Checkpointed()
    found = capture(model, make_batches(4, 5))
    assert {"body.0", "body.2"} <= set(found)
    assert all(len(inputs.calls) == 1 for inputs in found.values())
    bound, optimizer = consolidated(model, make_batches(4, 5), every=1)
    train(model, optimizer, make_batches(4, 5, seed=1))
    assert 0 < bound.telemetry()["drift"] <= 1.001


def test_lazy_layers() -> None:
    model = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(4))
    bound = DriftBound(model, every=1)
    model(torch.ones(1, 5))
    optimizer = SGD(model.parameters(), lr=0.5)
    bound.attach(optimizer).consolidate(make_batches(4, 5), cross_entropy)
    train(model, optimizer, make_batches(4, 5, seed=1))
    assert 0 < bound.telemetry()["drift"] <= 1.001


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), "self_attn.in_proj_weight, self_attn.in_proj_bias"),
        (nn.Sequential(weight_norm(nn.Linear(4, 4))), "0.parametrizations.weight.original0"),
    ],
)
def test_parameters_that_are_not_bounded_are_named_once(model: nn.Module, names: str) -> None:
    bound, optimizer = make_bound(model)
    batches = [(torch.randn(2, 3, 4), torch.randn(2, 3, 4))]
    loss = nn.MSELoss()
    train(model, optimizer, batches, 1, loss)
    with pytest.warns(UserWarning, match=f"can't be bounded and train as usual: .*{names}"):
        bound.consolidate(batches, loss)
    train(model, optimizer, batches, 1, loss)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound.consolidate(batches, loss)
    train(model, optimizer, batches, 9, loss)
