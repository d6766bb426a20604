"""Consolidating with an objective: batches of any kind, moved and cast to the model; failures change nothing."""

import copy
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from sfao import SFAO, Gate, layer_groups
from tests.optim.problem import loss, network, task, weights

MEMORIES = ["subspace", "directions", "both"]


@dataclass
class Example:
    x: Tensor
    y: Tensor
    name: str = "a task"


class Triple(NamedTuple):
    x: Tensor
    y: Tensor
    task: Tensor


KINDS = {
    "dict": (lambda x, y: {"x": x, "y": y}, lambda b: (b["x"], b["y"])),
    "nested": (lambda x, y: {"in": [x], "out": (y, None)}, lambda b: (b["in"][0], b["out"][0])),
    "triple": (lambda x, y: (x, y, torch.zeros(len(x))), lambda b: (b[0], b[1])),
    "named triple": (lambda x, y: Triple(x, y, torch.zeros(len(x))), lambda b: (b.x, b.y)),
    "dataclass": (Example, lambda b: (b.x, b.y)),
    "pair": (lambda x, y: (x, y), lambda b: b),
}


def make_objective(read, reduction="mean"):
    measure = nn.CrossEntropyLoss(reduction=reduction)

    def objective(model, batch):
        x, y = read(batch)
        return measure(model(x), y)

    return objective


def state_of(optimizer: SFAO):
    return copy.deepcopy(optimizer.state_dict()["gate"]["layers"])


def assert_same(one, other, tolerance=0.0):
    """The same containers, and the same tensors up to the tolerance."""
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert one.shape == other.shape
        assert torch.allclose(one.double(), other.double(), rtol=0, atol=tolerance)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one.keys() - {"seals"}:  # digests of values that are equal up to rounding
            assert_same(one[key], other[key], tolerance)
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair, tolerance)
    else:
        assert one == other


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_objective_stores_what_the_loss_of_pairs_does(kind, reduction, memory):
    make, read = KINDS[kind]
    model = network()
    by_pairs, by_objective = (SFAO(layer_groups(model), memory=memory) for _ in range(2))
    stored = by_pairs.consolidate(model, task(0), loss)
    batches = [make(x, y) for x, y in task(0)]
    assert by_objective.consolidate(model, batches, objective=make_objective(read, reduction)) == stored
    assert_same(state_of(by_objective), state_of(by_pairs), 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_examples_of_any_batch(kind):
    make, read = KINDS[kind]
    model = network()
    by_pairs, by_objective = (SFAO(layer_groups(model), memory="directions", capacity=20) for _ in range(2))
    by_pairs.consolidate(model, task(0), loss, per="example")
    batches = [make(x, y) for x, y in task(0)]
    assert by_objective.consolidate(model, batches, objective=make_objective(read), per="example") == 40
    assert_same(state_of(by_objective), state_of(by_pairs), 1e-6)


def test_batches_that_cannot_be_cut_stay_whole():
    model = network()
    optimizer = SFAO(layer_groups(model))
    batches = [{"x": x, "names": ["an example"] * len(x)} for x, _ in task(0)]
    seen = []

    def objective(model, batch):
        seen.append(len(batch["names"]))
        return model(batch["x"]).sum(1)

    assert optimizer.consolidate(model, batches, objective=objective, limit=40) > 0
    assert seen == [16, 16]
    gate = Gate(layer_groups(model), memory="directions")
    with pytest.raises(ValueError, match=r"must be cut into examples, .* but a dict of x, names does not"):
        gate.consolidate(model, batches, objective=objective, per="example")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("memory", MEMORIES)
def test_tensors_are_cast_to_the_model(dtype, memory):
    model = network().to(dtype)
    optimizer = SFAO(layer_groups(model), memory=memory)
    assert optimizer.consolidate(model, task(0), loss) > 0
    batches = [{"x": x, "y": y} for x, y in task(1)]
    assert optimizer.consolidate(model, batches, objective=make_objective(KINDS["dict"][1])) > 0


class Keyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x, labels=None):
        logits = self.inner(x)
        return logits if labels is None else {"logits": logits, "loss": loss(logits, labels)}


def test_mappings_of_arguments_need_no_objective_for_the_subspace():
    model = Keyword()
    by_pairs, by_name = (SFAO(layer_groups(model)) for _ in range(2))
    by_pairs.consolidate(model, task(0))
    by_name.consolidate(model, [{"x": x, "labels": y} for x, y in task(0)])
    assert_same(state_of(by_name), state_of(by_pairs))
    with pytest.raises(
        ValueError, match=r"arguments by name; for others give `objective`, but a dict of x, y .*TypeError"
    ):
        by_name.consolidate(model, [{"x": x, "y": y} for x, y in task(0)])
    with pytest.raises(ValueError, match="pairs of tensors, got tuple of Tensor, Tensor, Tensor; for others give `obj"):
        by_name.consolidate(model, [(x, y, y) for x, y in task(0)])


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, 11)

    def forward(self, ids):
        return self.head(self.embed(ids).cumsum(1))


def test_the_logit_of_sequences_leaves_ignored_places_out():
    model, ids = Sequences(), torch.randint(0, 11, (4, 7))
    targets = ids.roll(-1, 1)
    targets[:, -1] = -100
    optimizer = SFAO(layer_groups(model), memory="directions")
    optimizer.consolidate(model, [(ids, targets)], target="logit")
    logits = model(ids[:1])[0, :-1]
    wanted = torch.autograd.grad(logits.gather(1, targets[:1, :-1].T).mean(), list(model.head.parameters()))
    layer = next(layer for layer in optimizer.gate.layers if layer.name == "head")
    held = torch.cat([tensor[0] for tensor in layer.memory.blocks[0].used])
    expected = torch.cat([gradient.flatten() for gradient in wanted])
    assert torch.allclose(held, expected / expected.norm(), atol=1e-6)
    with pytest.raises(ValueError, match="needs class indices below the 11 outputs, got -1 to"):
        optimizer.consolidate(model, [(ids, targets.clamp_min(-1))], target="logit")


def bad_value(value):
    return lambda model, batch: value


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (lambda model, batch: model(batch["z"]), "able to read the batches, but a dict of x, y .*: KeyError: 'z'"),
        (lambda model, batch: model(batch["x"]), "one number or one for each example, .* got a tensor of shape"),
        (lambda model, batch: {"loss": 1.0}, "one number or one for each example, .* got dict"),
        (lambda model, batch: 3.0, "one number or one for each example, .* got float"),
        (lambda model, batch: model.train() and 1 / 0, "ZeroDivisionError"),
    ],
)
def test_an_objective_that_fails_changes_nothing(objective, message, memory):
    model = network()
    model[0].eval()
    optimizer = SFAO(layer_groups(model), memory=memory)
    optimizer.consolidate(model, task(0), loss)
    model[2].weight.grad = torch.ones_like(model[2].weight)
    before, were = state_of(optimizer), weights(model)
    with pytest.raises(ValueError, match=message) as failure:
        optimizer.consolidate(model, [{"x": x, "y": y} for x, y in task(1)], objective=objective)
    assert "\n" not in str(failure.value)
    assert_same(state_of(optimizer), before)
    assert torch.equal(weights(model), were)
    assert [module.training for module in model.modules()] == [True, False, True, True]
    assert torch.equal(model[2].weight.grad, torch.ones_like(model[2].weight))
    assert optimizer.gate.task == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "loss"}, "`objective` must be a function of \\(model, batch\\), got str"),
        ({"objective": bad_value(1), "loss": loss}, "`objective` takes the place of `loss`; give one of the two"),
        (
            {"objective": bad_value(1), "target": "logit"},
            "`objective` takes the place of `target`; give one of the two",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    optimizer = SFAO(layer_groups(network()), memory="directions")
    with pytest.raises(ValueError, match=message):
        optimizer.consolidate(network(), task(0), **arguments)
