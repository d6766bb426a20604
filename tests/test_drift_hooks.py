"""Hooks on the model: evaluation, saving, copies, frozen BatchNorm statistics and torch.compile."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.drift_bound import DriftBound
from tests.bounding import (
    Batches,
    consolidated,
    copy_weights,
    make_batches,
    make_bound,
    make_cnn,
    make_mlp,
    same,
    train,
)

SHAPE = (6, 2, 6, 6)


class Network(nn.Module):
    """A model of its own class: torch.compile runs the hooks of such models outside of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = make_cnn()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def make_dirty(model: nn.Module, batches: Batches) -> tuple[DriftBound, Any, list[Tensor]]:
    """Return a bound whose model took steps far out of its set, the optimizer and the nearest allowed weights."""
    bound, optimizer = consolidated(model, batches, every=1000, clip=None)
    copy, twin = deepcopy((model, bound))
    train(model, optimizer, batches, 3, lambda x, y: -5 * cross_entropy(x, y))
    for own, value in zip(copy.parameters(), model.parameters(), strict=True):
        own.data = value.detach().clone()
    twin.apply()
    return bound, optimizer, copy_weights(copy)


@pytest.mark.parametrize(
    "flush", ["eval", "inference", "state_dict", "optimizer", "bound", "consolidate", "apply", "detach"]
)
def test_weights_are_projected_before_they_are_read(flush: str) -> None:
    model, batches = make_cnn(), make_batches(*SHAPE)
    bound, optimizer, allowed = make_dirty(model, batches)
    assert not same(copy_weights(model), allowed)
    acts: dict[str, Callable[[], Any]] = {
        "eval": lambda: model.eval()(batches[0][0]),
        "inference": lambda: torch.inference_mode()(model.eval())(batches[0][0]),
        "state_dict": model.state_dict,
        "optimizer": optimizer.state_dict,
        "bound": bound.state_dict,
        "consolidate": lambda: bound.consolidate(batches, cross_entropy),
        "apply": bound.apply,
        "detach": bound.detach,
    }
    acts[flush]()
    assert same(copy_weights(model), allowed)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_evaluation_between_forward_and_backward(context: Any) -> None:
    model, batches = make_cnn(), make_batches(*SHAPE)
    _, _, allowed = make_dirty(model, batches)
    projected, plain, (x, y) = deepcopy(model), deepcopy(model), batches[0]
    for parameter, value in zip(projected.parameters(), allowed, strict=True):
        parameter.data = value
    for module in (plain, model):  # BatchNorm of the copy is no longer frozen
        module.train()
        module[1].eval()
        module.zero_grad()
    cross_entropy(plain(x), y).backward()
    before = copy_weights(model)
    loss = cross_entropy(model(x), y)
    model.eval()
    with context():
        torch.testing.assert_close(model(x), projected.eval()(x))
        saved = list(model.state_dict().values())
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 1))
    model.train()
    assert same(copy_weights(model), before)
    loss.backward()
    for own, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, expected.grad)
    assert same(saved, list(projected.state_dict().values()))


def test_copies_and_pickles_are_independent() -> None:
    model, batches = make_cnn(), make_batches(*SHAPE)
    bound, _, allowed = make_dirty(model, batches)
    before = copy_weights(model)
    for copy in (deepcopy(model), pickle.loads(pickle.dumps(model))):
        copy.eval()(batches[0][0])
        copy.state_dict()
        copy.train()(batches[0][0])
        assert same(copy_weights(model), before)
        assert not same(list(copy.buffers()), list(model.buffers()))
        copy.load_state_dict(copy.state_dict())
    assert not bound.is_projected
    assert not bound._loaded
    bound.apply()
    assert same(copy_weights(model), allowed)


@pytest.mark.parametrize(
    "form", ["plain", "aot_eager", "full wrapped aot_eager", "called eager", "called full wrapped eager", "in place"]
)
def test_batch_norm_uses_frozen_statistics_after_the_first_task(form: str) -> None:
    torch.compiler.reset()
    model, batches = Network(), make_batches(*SHAPE, shift=1.0)
    options: dict[str, Any] = {"backend": form.split()[-1], "fullgraph": "full" in form}
    call: Any = model if form in ("plain", "in place") else torch.compile(model, **options)
    if form == "in place":
        model.compile(backend="eager")
    if form.startswith("called"):
        call(batches[0][0])
    bound, optimizer = make_bound(call if "wrapped" in form else model, lr=0.1)
    norm: Any = model.layers[1]
    before = norm.running_mean.clone()
    train(call, optimizer, batches)
    moved = norm.running_mean.clone()
    assert not torch.equal(before, moved)
    bound.consolidate(batches, cross_entropy)
    train(call, optimizer, make_batches(*SHAPE, seed=1, shift=-3.0))
    assert torch.equal(norm.running_mean, moved)
    x = make_batches(*SHAPE, shift=5.0)[0][0]
    bound.apply()
    model.train()
    torch.testing.assert_close(call(x), model.eval()(x))
    train(call, optimizer, batches, 3, lambda x, y: -9 * cross_entropy(x, y))
    call.eval()(x)
    assert bound.telemetry()["drift"] <= 1.001, "no projection before evaluation"


def test_detach_unfreezes_batch_norm() -> None:
    model, batches = make_cnn(), make_batches(*SHAPE)
    bound, optimizer = consolidated(model, batches)
    bound.detach()
    before = model[1].running_mean.clone()
    model.train()(batches[0][0])
    assert not torch.equal(model[1].running_mean, before)
    bound.attach(optimizer)
    before = model[1].running_mean.clone()
    model.train()(batches[0][0])
    assert torch.equal(model[1].running_mean, before)


@pytest.mark.parametrize("options", [{"backend": "eager", "fullgraph": True}, {"backend": "aot_eager"}])
def test_compiled_blocks_are_bounded(options: dict[str, Any]) -> None:
    torch.compiler.reset()
    model, batches = make_mlp(), make_batches(6, 5)
    norm = nn.BatchNorm1d(6)
    model[0] = torch.compile(nn.Sequential(nn.Linear(5, 6), norm), **options)
    bound, optimizer = make_bound(model, every=1)
    train(model, optimizer, batches)
    bound.consolidate(batches, cross_entropy)
    assert list(bound.memory) == ["0.0", "0.1", "2"]
    moved = norm.running_mean.clone()
    train(model, optimizer, batches)
    assert torch.equal(norm.running_mean, moved)
    assert 0 < bound.telemetry()["drift"] <= 1.001
