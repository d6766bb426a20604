"""Hooks of an optimizer: every torch optimizer, closures, gradient scalers, and states that lost their memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn.functional import cross_entropy

from sfao.attachment import ATTACHED, STATE_KEY, TASKS_KEY
from sfao.drift_bound import DriftBound
from sfao.gate import Gate
from sfao.optimizer import SFAO
from tests.bounding import consolidated, copy_weights, make_batches, make_bound, make_cnn, make_mlp, same, train

BATCHES, OTHERS = make_batches(8, 5), make_batches(8, 5, seed=1)
OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.5),
    "momentum": lambda p: optim.SGD(p, lr=0.5, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.1),
    "fused": lambda p: optim.AdamW(p, lr=0.1, fused=True),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.1),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.5),
    "lbfgs": lambda p: optim.LBFGS(p, lr=1.0, max_iter=3),
}


def make_closure(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("style", ["plain", "closure", "keyword"])
def test_the_weights_of_any_optimizer_stay_in_the_set(name: str, style: str) -> None:
    model = make_mlp()
    optimizer = OPTIMIZERS[name](model.parameters())
    bound = DriftBound(model, every=1).attach(optimizer)
    bound.consolidate(BATCHES, cross_entropy)
    for x, y in OTHERS * 2:
        closure = make_closure(model, optimizer, x, y)
        if style == "plain" and name != "lbfgs":
            closure()
            optimizer.step()
        else:
            loss = optimizer.step(closure=closure) if style == "keyword" else optimizer.step(closure)
            assert isinstance(loss, Tensor)
        assert 0 < bound.telemetry()["drift"] <= 1.001
    assert bound.telemetry()["acted"] > 0


def test_lbfgs_is_projected_after_every_step_and_never_clipped() -> None:
    model, batches = make_cnn(), make_batches(6, 2, 6, 6)
    optimizer = optim.LBFGS(model.parameters(), max_iter=2)
    bound = DriftBound(model, clip=1e-6, every=100).attach(optimizer)
    bound.consolidate(batches, cross_entropy)
    optimizer.step(make_closure(model, optimizer, *batches[0]))
    assert bound.telemetry()["clipped"] == 0
    assert bound.telemetry()["drift"] <= 1.001


def test_gradients_of_a_closure_are_clipped() -> None:
    moved = []
    for uses_closure in (False, True):
        torch.manual_seed(0)
        model, batches = make_cnn(), make_batches(6, 2, 6, 6)
        bound, optimizer = consolidated(model, batches, clip=1e-3, lr=1e-3)
        closure = make_closure(model, optimizer, *batches[0])
        if uses_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        assert bound.telemetry()["clipped"] > 0
        moved.append(copy_weights(model))
    assert same(*moved)


def test_several_optimizers() -> None:
    model = make_mlp()
    first, second = optim.SGD(model[0].parameters(), lr=0.5), optim.AdamW(model[2].parameters(), lr=0.1)
    bound = DriftBound(model, every=2).attach(first, second)
    bound.consolidate(BATCHES, cross_entropy)
    for number in range(1, 5):
        for optimizer in (first, second):
            optimizer.zero_grad()
        cross_entropy(model(OTHERS[0][0]), OTHERS[0][1]).backward()
        first.step()
        second.step()
        assert (bound.telemetry()["drift"] <= 1.001) == (number % 2 == 0)
    assert STATE_KEY in first.state_dict()
    assert STATE_KEY not in second.state_dict()


@pytest.mark.parametrize("fused", [False, True])
def test_gradient_scaler(fused: bool) -> None:
    """Skipped steps change nothing; clipping sees unscaled gradients."""
    model, batches = make_cnn(), make_batches(6, 2, 6, 6)
    optimizer = optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    bound = DriftBound(model, every=1, clip=1e3).attach(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    bound.consolidate(batches, cross_entropy)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)
    for number, (x, y) in enumerate(batches):
        before = copy_weights(model)
        optimizer.zero_grad()
        scaler.scale(cross_entropy(model(x), y) * (float("inf") if number == 1 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert same(before, copy_weights(model)) == (number == 1)
        assert bound.telemetry()["drift"] <= 1.001
    assert bound.telemetry()["clipped"] == 0
    bound.detach()
    assert getattr(optimizer, "_step_supports_amp_scaling", False) == fused


def test_optimizers_that_cannot_be_bounded() -> None:
    class ScheduleFree(optim.SGD):
        def train(self) -> None: ...

        def eval(self) -> None: ...

    model, other = make_mlp(), make_mlp()
    bound = DriftBound(model)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for bad, message in [
        ((), "at least one optimizer"),
        ((model,), "must be a torch optimizer, got a Sequential"),
        ((ScheduleFree(model.parameters(), lr=0.1),), "swaps them in train"),
        ((optim.SGD(other.parameters(), lr=0.1),), "must optimize parameters of the model"),
        ((optimizer, optimizer), "got one twice"),
        ((optimizer, optim.SGD(other.parameters(), lr=0.1)), "must optimize parameters of the model"),
    ]:
        with pytest.raises(ValueError, match=message) as caught:
            bound.attach(*bad)
        assert "\n" not in str(caught.value)
        assert not optimizer._optimizer_step_post_hooks
    bound.attach(optimizer)
    for other in (DriftBound, Gate):
        with pytest.raises(ValueError, match="can have one Gate or DriftBound, but this SGD has a DriftBound"):
            other(model).attach(optimizer)
    with pytest.raises(ValueError, match=r"a bound must be free to be attached, .* detach\(\) it first"):
        bound.attach(optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("kind", [DriftBound, Gate])
def test_a_new_optimizer_for_every_task(kind: Any) -> None:
    model = make_mlp()
    attached = kind(model)
    for task in range(3):
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        attached.attach(optimizer)  # the one of the task before is gone
        train(model, optimizer, make_batches(8, 5, seed=task), 9)
        attached.consolidate(make_batches(8, 5, seed=task), cross_entropy)
        assert optimizer.state_dict()["sfao"]["tasks"] == task + 1
    if kind is DriftBound:
        acted = attached.telemetry()["acted"]
        train(model, optimizer, make_batches(8, 5, seed=9, shift=3), 8)
        assert attached.telemetry()["acted"] > acted


@pytest.mark.parametrize("saved", ["sfao", "gate", "bound"])
@pytest.mark.parametrize("kind", [DriftBound, Gate])
def test_an_optimizer_that_has_lost_a_memory_is_refused(saved: str, kind: Any) -> None:
    model = make_mlp()
    optimizer: Any = SFAO(model, lr=0.1) if saved == "sfao" else optim.SGD(model.parameters(), lr=0.1)
    memory = optimizer if saved == "sfao" else (Gate if saved == "gate" else DriftBound)(model).attach(optimizer)
    memory.consolidate(make_batches(8, 5), cross_entropy)
    plain = optim.SGD([{"params": group["params"]} for group in optimizer.param_groups], lr=0.1)
    plain.load_state_dict(optimizer.state_dict())
    fresh = kind(model)
    with pytest.raises(ValueError, match="has loaded a state with the memory of 1 tasks, and nothing was attached"):
        fresh.attach(plain)
    if kind is type(memory):
        fresh.load_state_dict(memory.state_dict())
        fresh.attach(plain)


def test_detach_restores_the_optimizer() -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES)
    bound.detach()
    assert optimizer not in ATTACHED
    assert set(optimizer.state_dict()) == {"state", "param_groups"}
    train(model, optimizer, OTHERS, 20)
    assert bound.telemetry()["drift"] > 1.5
    assert not any(optimizer._optimizer_step_post_hooks)


def test_a_state_that_lost_its_memory_is_refused() -> None:
    model = make_mlp()
    _, optimizer = consolidated(model, BATCHES)
    state = optimizer.state_dict()
    assert {group[TASKS_KEY] for group in state["param_groups"]} == {1}
    del state[STATE_KEY]
    _, fresh = make_bound(make_mlp())
    with pytest.raises(RuntimeError, match="must hold the memory of 1 tasks under 'sfao', but the key is missing"):
        fresh.load_state_dict(state)
    assert TASKS_KEY not in fresh.param_groups[0]
