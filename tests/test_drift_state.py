"""Saving, loading, resuming, and layers that grow."""

import io
import pickle
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn.functional import cross_entropy
from torch.utils._pytree import tree_flatten

from sfao.drift_bound import DriftBound
from tests.bounding import (
    consolidated,
    copy_weights,
    drift_of_outputs,
    make_batches,
    make_bound,
    make_cnn,
    make_mlp,
    same,
    train,
)

BATCHES, OTHERS = make_batches(8, 5), make_batches(8, 5, seed=1)


def through_file(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_equal(left: Any, right: Any) -> None:
    (own, spec), (others, other_spec) = tree_flatten(left), tree_flatten(right)
    assert spec == other_spec
    assert all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(own, others, strict=True))


@pytest.mark.parametrize("through_optimizer", [True, False])
@pytest.mark.parametrize("make", [make_mlp, make_cnn])
def test_resuming_inside_a_task_is_exact(through_optimizer: bool, make: Any) -> None:
    shape = (8, 5) if make is make_mlp else (6, 2, 6, 6)
    batches, others = make_batches(*shape), make_batches(*shape, seed=1)

    def start(model: nn.Module) -> tuple[DriftBound, optim.Optimizer]:
        optimizer = optim.AdamW(model.parameters(), lr=0.02)
        return DriftBound(model, every=4, examples=10).attach(optimizer), optimizer

    first_two = lambda x, y: cross_entropy(x[:, :2], y % 2)  # noqa: E731
    model = make()
    bound, optimizer = start(model)
    bound.consolidate(batches, first_two)
    train(model, optimizer, others, 6)
    saved = through_file(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "bound": bound.state_dict()}
    )

    resumed = make()
    new_bound, new_optimizer = start(resumed)
    if not through_optimizer:
        new_bound.load_state_dict(saved["bound"])
        del saved["optimizer"]["sfao"]
    new_optimizer.load_state_dict(saved["optimizer"])
    resumed.load_state_dict(saved["model"])
    for own, own_optimizer, own_bound in ((model, optimizer, bound), (resumed, new_optimizer, new_bound)):
        train(own, own_optimizer, others, 7)
        own_bound.consolidate(others, cross_entropy)
        train(own, own_optimizer, batches, 5)
    assert same(copy_weights(model), copy_weights(resumed))
    assert_equal(bound.state_dict(), new_bound.state_dict())


def test_consolidating_after_resuming_without_a_step_is_still_one_task() -> None:
    """A layer that only the second data set reaches has its full weight, resumed or not."""

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList(nn.Linear(5, 4) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return self.heads[int(x[0, 0] > 50)](x)

    model, far = Heads(), [(x + 100, y) for x, y in BATCHES]
    bound, optimizer = make_bound(model, lr=1e-3)
    bound.consolidate(far, cross_entropy)
    train(model, optimizer, BATCHES, 1)
    bound.consolidate(BATCHES, cross_entropy)
    resumed, _ = make_bound(deepcopy(model))
    resumed.load_state_dict(through_file(bound.state_dict()))
    trace = bound.memory["heads.1"].moments.trace
    for own in (bound, resumed):
        own.consolidate(far, cross_entropy)
        torch.testing.assert_close(own.memory["heads.1"].moments.trace, 2 * trace)
        assert own.tasks == 2
        assert [own.memory[f"heads.{n}"].tasks for n in range(2)] == [1, 2]
    assert_equal(bound.state_dict(), resumed.state_dict())


def test_a_checkpoint_of_the_same_task_can_be_restored() -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES)
    train(model, optimizer, OTHERS, 3)
    best = deepcopy(model.state_dict())
    train(model, optimizer, OTHERS, 3)
    model.load_state_dict(best)
    model.eval()(OTHERS[0][0])
    assert same(list(model.state_dict().values()), list(best.values()))
    train(model, optimizer, OTHERS, 9)
    assert bound.telemetry()["drift"] > 0


@pytest.mark.parametrize("order", ["weights first", "memory first"])
def test_a_memory_beside_other_weights_raises(order: str) -> None:
    model = make_mlp()
    bound, _ = consolidated(model, BATCHES)
    other, optimizer = make_bound(fresh := make_mlp())
    if order == "weights first":
        fresh.load_state_dict(make_mlp().state_dict())
    other.load_state_dict(bound.state_dict())
    if order == "memory first":
        fresh.load_state_dict(make_mlp().state_dict())
    before = copy_weights(fresh)
    for act in (
        lambda: train(fresh, optimizer, OTHERS, 1),
        lambda: other.consolidate(OTHERS, cross_entropy),
        other.apply,
    ):
        with pytest.raises(RuntimeError, match="weights must be those of the memory, but layer '0' has") as caught:
            act()
        assert "\n" not in str(caught.value)
    assert same(before, copy_weights(fresh))
    fresh.load_state_dict(model.state_dict())
    train(fresh, optimizer, OTHERS, 1)


@pytest.mark.parametrize("state", [{"class": "Gate"}, {"state": {}, "param_groups": []}, [1]])
def test_other_states_are_refused(state: Any) -> None:
    bound, _ = consolidated(make_mlp(), BATCHES)
    before = bound.state_dict()
    with pytest.raises(RuntimeError, match="must come from a DriftBound, got the state of"):
        bound.load_state_dict(state)
    assert_equal(bound.state_dict(), before)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (make_mlp(width=7), r"groups, rows and inputs \(1, 7, 6\) in layer '0', got \(1, 6, 6\)"),
        (nn.Sequential(nn.Linear(5, 6)), "no layer '2' to bound"),
    ],
)
def test_states_of_other_models_are_refused(model: nn.Module, message: str) -> None:
    bound, optimizer = consolidated(make_mlp(), BATCHES)
    other, fresh = make_bound(model)
    with pytest.raises(RuntimeError, match=message):
        other.load_state_dict(bound.state_dict())
    with pytest.raises(RuntimeError, match=message):
        fresh.load_state_dict(optimizer.state_dict())
    assert other.tasks == 0


def grow(layer: Any, more: int) -> Any:
    """Return a layer with more rows; the first are those of before."""
    if isinstance(layer, nn.Embedding):
        new: Any = nn.Embedding(layer.num_embeddings + more, layer.embedding_dim)
    else:
        new = nn.Linear(layer.in_features, layer.out_features + more)
    with torch.no_grad():
        for own, old in zip(new.parameters(), layer.parameters(), strict=True):
            own[: len(old)] = old
    return new


def test_a_grown_head_is_rebound() -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES, every=1)
    train(model, optimizer, OTHERS, 3)
    anchor, hidden = deepcopy(model[2]), model[:2](BATCHES[0][0]).detach()
    bound.consolidate(BATCHES, cross_entropy)
    acted = bound.telemetry()["layers/0/acted"]
    model[2] = grow(model[2], 3)
    with pytest.raises(RuntimeError, match="layer '2' must be part of the model, but was replaced; call rebind"):
        bound.consolidate(BATCHES, cross_entropy)
    with pytest.raises(RuntimeError, match="call rebind"):
        bound.apply()
    with pytest.raises(ValueError, match="`optimizer` must optimize the new parameters, but not those of '2'"):
        bound.rebind()
    optimizer.add_param_group({"params": list(model[2].parameters())})
    assert bound.rebind() == ["2"]
    assert bound.telemetry()["layers/0/acted"] == acted > 0
    start = model[2].weight.detach().clone()
    train(model, optimizer, [(x, y % 3) for x, y in OTHERS], 10, lambda x, y: cross_entropy(x[:, 4:], y))
    assert (model[2].weight - start)[4:].norm() > 0.2
    train(model, optimizer, [(x, y) for x, y in OTHERS], 10, lambda x, y: cross_entropy(x[:, :4], y))
    now = nn.Linear(6, 4)
    now.weight.data, now.bias.data = model[2].weight.data[:4], model[2].bias.data[:4]
    assert 0 < drift_of_outputs(now, anchor, [hidden]) < 0.2


def test_a_grown_embedding_is_rebound() -> None:
    model = nn.Sequential(nn.Embedding(6, 5), nn.Flatten(), nn.Linear(10, 4))
    batches = [(torch.randint(6, (8, 2)), torch.randint(4, (8,)))]
    bound, _ = consolidated(model, batches)
    model[0] = grow(model[0], 3)
    optimizer = optim.SGD(model.parameters(), lr=5.0)
    bound.detach()
    assert bound.rebind(model) == ["0"]
    bound.attach(optimizer)
    start = model[0].weight.detach().clone()
    train(model, optimizer, [(torch.randint(6, 9, (8, 2)), torch.randint(4, (8,)))], 5)
    bound.apply()
    moved = (model[0].weight - start).norm(dim=1)
    assert moved[:6].max() == 0
    assert moved[6:].min() > 0


def test_rebind_refuses_other_layers() -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES)
    with pytest.raises(ValueError, match="the model that the bound was made with"):
        bound.rebind(make_mlp())
    for new, message in (
        (nn.Linear(9, 4), "may only grow by rows"),
        (nn.Linear(6, 3), "may only grow"),
        (nn.ReLU(), "must still have layer '2'"),
    ):
        old, model[2] = model[2], new
        with pytest.raises(ValueError, match=message):
            bound.rebind()
        model[2] = old
    model[2] = nn.Linear(6, 5)  # has the shape, but not the rows of before
    optimizer.add_param_group({"params": list(model[2].parameters())})
    bound.rebind()
    with pytest.raises(RuntimeError, match=r"layer '2' has .* times its allowed drift"):
        train(model, optimizer, BATCHES, 1)


def test_state_of_parameters_that_left_the_optimizer_is_dropped() -> None:
    model = make_mlp()
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    bound = DriftBound(model).attach(optimizer)
    train(model, optimizer, BATCHES, 2)
    bound.consolidate(BATCHES, cross_entropy)
    old = set(model[2].parameters())
    model[2] = grow(model[2], 3)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    bound.rebind()
    assert not old & set(optimizer.state)
    optimizer.state_dict()


def test_loading_a_part_of_the_model_checks_that_part_alone() -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES, every=100, tolerance=0.01)
    saved = deepcopy(model[2].state_dict())
    train(model, optimizer, OTHERS, 5)
    model[2].load_state_dict(saved)
    train(model, optimizer, OTHERS, 1)  # layer 0 is outside its set, but was not loaded
    bound.apply()
    assert bound.telemetry()["drift"] <= 1.0001
    for parameter in saved.values():
        parameter.add_(1)
    model[2].load_state_dict(saved)
    with pytest.raises(RuntimeError, match=r"layer '2' has .* times its allowed drift"):
        train(model, optimizer, OTHERS, 1)


def test_the_tolerance_can_be_changed() -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES, every=1, tolerance=0.5)
    train(model, optimizer, OTHERS, 5)
    acted = bound.telemetry()["acted"]
    bound.tolerance = 0.01
    model.eval()(BATCHES[0][0])
    telemetry = bound.telemetry()
    assert telemetry["layers/0/allowed"] == 0.01
    assert telemetry["layers/0/drift"] <= 0.01001
    assert telemetry["acted"] > acted > 0
    with pytest.raises(ValueError, match=r"`tolerance` must be in \(0, 1\], got 7"):
        bound.tolerance = 7
    assert bound.tolerance == 0.01


@pytest.mark.parametrize("copy", [deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["deepcopy", "pickle"])
def test_a_copy_bounds_its_own_model_once_it_is_attached(copy: Any) -> None:
    model = make_cnn()
    batches, others = make_batches(8, 2, 6, 6), make_batches(8, 2, 6, 6, seed=1)
    bound, optimizer = consolidated(model, batches)
    train(model, optimizer, others, 3)
    twin, twin_bound = copy((model, bound))
    with pytest.raises(RuntimeError, match=r"call attach\(optimizer\) first"):
        twin_bound.consolidate(batches, cross_entropy)
    twin_optimizer = optim.SGD(twin.parameters(), lr=0.5)
    twin_bound.attach(twin_optimizer)
    before = copy_weights(model)
    train(twin, twin_optimizer, others, 9)
    twin.eval()(batches[0][0])
    assert twin_bound.telemetry()["drift"] <= 1.0001
    assert twin_bound.telemetry()["acted"] > bound.telemetry()["acted"]
    assert same(copy_weights(model), before)
    assert not twin[1].training
