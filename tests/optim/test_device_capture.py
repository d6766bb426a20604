"""Steps that somebody has captured in a CUDA graph of their own. Without a GPU, a step that believes it is captured is
done at once, and doing it again stands for replaying it.
"""

import copy
import pickle
from collections.abc import Callable
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from sfao import SFAO, Gate, layer_groups
from sfao.optim import _gate_path as gate_path
from sfao.optim._gate_path import NonFiniteGradient
from tests.on_device import DEVICE, HAS_GPU, gated_on
from tests.optim.beside import EVERY, PROJECT, Beside, Layers, flat, made_up, remembering

pytestmark = pytest.mark.usefixtures("_on_device")

LIVELY = {"accept_above": 0.6, "discard_below": 0.3}


@contextmanager
def capturing():
    with pytest.MonkeyPatch.context() as patch:
        if not HAS_GPU:
            patch.setattr(gate_path, "is_capturing", lambda: True)
        yield


def captured(optimizer: SFAO) -> Callable[[], None]:
    """A replay of a step with the gradients where they are now."""
    if HAS_GPU:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.zeros(1, device=DEVICE)  # torch warns of graphs that are empty, as one is when step() refuses
            optimizer.step()
        return graph.replay

    def again() -> None:
        with capturing():
            optimizer.step()

    return again


def given(model: nn.Module, gradients: list[Tensor]) -> None:
    """Write these gradients to where the gradients lie."""
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad.copy_(gradient)


def warmed_up(**options) -> Beside:
    beside = remembering(Layers(), **options)
    beside.step(made_up(beside.host_model, 0, 90))
    return beside


def replayed(beside: Beside, replay: Callable[[], None], number: int) -> None:
    """Replay beside a step on the host, and compare."""
    gradients = made_up(beside.host_model, number % 3, number)
    given(beside.host_model, gradients)
    given(beside.device_model, gradients)
    with gated_on():
        beside.host.step()
    replay()
    for host, device in zip(beside.host_model.parameters(), beside.device_model.parameters(), strict=True):
        assert torch.allclose(device.cpu(), host, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{}, {"samples": 3}, {"storage": "factored", "samples": 5}, {"momentum": 0.9, "weight_decay": 0.1}],
    ids=str,
)
def test_every_replay_decides_anew(options):
    beside = warmed_up(**LIVELY, **options)
    replay = captured(beside.device)
    for number in range(100, 105):
        replayed(beside, replay, number)
    assert beside.device.counts == beside.host.counts
    decided = [sum(of_layer[kind] for of_layer in beside.host.counts.values()) for kind in EVERY]
    assert all(decided)


def test_steps_between_replays():
    """With gradients elsewhere; whoever comes next points at its own."""
    beside = warmed_up(samples=3, **LIVELY)
    own = [parameter.grad for parameter in beside.device_model.parameters()]
    replay = captured(beside.device)
    replayed(beside, replay, 100)
    beside.step(made_up(beside.host_model, 1, 101))
    for parameter, gradient in zip(beside.device_model.parameters(), own, strict=True):
        parameter.grad = gradient
    replayed(beside, replay, 102)
    assert beside.device.counts == beside.host.counts


def test_a_captured_step_points_at_its_gradients_and_so_does_every_step_after_it(monkeypatch):
    """Also where they have not moved: the graph must know them, and its replays leave its own addresses behind."""
    beside = warmed_up(**PROJECT)
    there = [parameter.grad.data_ptr() for parameter in beside.device_model.parameters()]
    engine, pointed = beside.device.gate._path.gate, []
    point_at = engine.point_at
    monkeypatch.setattr(engine, "point_at", lambda addresses: (pointed.append(addresses), point_at(addresses)))
    beside.device.step()
    assert pointed == []
    captured(beside.device)()
    assert pointed == [there]
    beside.device.step()
    assert pointed == [there, there]


def test_a_saved_state_knows_of_replays():
    """How many samples were drawn, too: what is loaded draws those that come next."""
    beside = warmed_up(samples=3, **LIVELY)
    replay = captured(beside.device)
    for number in range(100, 103):
        replayed(beside, replay, number)
    states = (optimizer.state_dict()["gate"]["layers"] for optimizer in (beside.host, beside.device))
    turns = [{name: layer["memory"]["sampler"] for name, layer in state.items()} for state in states]
    assert turns[0] == turns[1]


def test_what_is_not_ready_cannot_be_captured():
    beside = remembering(Layers(), **PROJECT)
    beside.give(made_up(beside.host_model, 0, 100))
    refused(beside.device)
    beside.device.step()
    beside.device.param_groups[0]["accept_above"] = 0.9
    refused(beside.device)


def refused(optimizer: SFAO) -> None:
    with pytest.raises(RuntimeError, match="take a few steps first"), capturing():
        captured(optimizer)()


def test_a_graph_from_before_the_memory_changed_does_nothing_and_is_told_of():
    beside = warmed_up(**PROJECT)
    replay = captured(beside.device)
    replayed(beside, replay, 100)
    gate = beside.device.gate._path.gate
    old = [parameter.grad for parameter in beside.device_model.parameters()]
    beside.remember(made_up(beside.host_model, 1, 101))
    before, counts = flat(beside.device_model.parameters()), beside.device.counts
    if HAS_GPU:
        replay()
    else:
        gate.run()
    assert not any(gradient.any() for gradient in old)
    assert torch.equal(flat(beside.device_model.parameters()), before)
    with pytest.raises(RuntimeError, match="one from before was replayed; those steps changed nothing"):
        _ = beside.device.counts
    assert beside.device.counts == counts
    beside.step(made_up(beside.host_model, 1, 102))


def test_every_look_is_at_the_last_replay():
    beside = warmed_up(**LIVELY)
    replay = captured(beside.device)
    replayed(beside, replay, 100)
    decided = [beside.device.last_decisions]
    for number in range(101, 105):
        gradients = made_up(beside.host_model, number % 3, number)
        given(beside.host_model, gradients)
        given(beside.device_model, gradients)
        with gated_on():
            beside.host.step()
        rerun(beside, replay)
        assert beside.device.last_decisions == beside.host.last_decisions
        decided.append(beside.device.last_decisions)
    assert any(before != after for before, after in pairwise(decided))


def rerun(beside: Beside, replay: Callable[[], None]) -> None:
    """Replay, which does not pass through step(): without a GPU, the gate's part of it."""
    if HAS_GPU:
        replay()
    else:
        beside.device.gate._path.gate.run()


def test_a_gradient_that_was_not_finite_in_a_replay_is_told_by_the_next_look():
    beside = warmed_up(**PROJECT)
    replay = captured(beside.device)
    replayed(beside, replay, 100)
    _ = beside.device.last_decisions
    given(beside.device_model, [torch.full_like(p, torch.nan) for p in beside.device_model.parameters()])
    rerun(beside, replay)
    with pytest.raises(NonFiniteGradient, match="'linear'"):
        _ = beside.device.last_decisions


def test_a_graph_from_before_a_state_was_loaded_does_nothing_and_is_told_of():
    beside = warmed_up(**PROJECT)
    replay = captured(beside.device)
    replayed(beside, replay, 100)
    old = beside.device.gate._path.gate
    beside.device.load_state_dict(beside.device.state_dict())
    before = flat(beside.device_model.parameters())
    if HAS_GPU:
        replay()
    else:
        old.run()
    assert not flat(beside.device_model.parameters(), grad=True).any()
    assert torch.equal(flat(beside.device_model.parameters()), before)
    with pytest.raises(RuntimeError, match="one from before was replayed"):
        _ = beside.device.counts


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_a_graph_goes_on_after_the_optimizer_was_copied(copied):
    beside = warmed_up(samples=3, **LIVELY)
    replay = captured(beside.device)
    replayed(beside, replay, 100)
    path = beside.device.gate._path
    copied(beside.device)
    assert beside.device.gate._path is path
    for number in (101, 102):
        replayed(beside, replay, number)
    assert beside.device.counts == beside.host.counts


def test_a_gate_before_another_optimizer_cannot_be_captured():
    model = nn.Linear(4, 3).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(layer_groups(model)).attach(optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    with pytest.raises(RuntimeError, match="a step with a Gate attached cannot be captured"), capturing():
        captured(optimizer)()
    assert gate.counts["(root)"]["accept"] == 1


def test_a_learning_rate_on_the_device():
    beside = warmed_up(**PROJECT)
    rate = torch.tensor(0.05, device=DEVICE)
    for group in beside.device.param_groups:
        group["lr"] = rate
    replay = captured(beside.device)
    replayed(beside, replay, 100)
    rate.fill_(0.5)
    for group in beside.host.param_groups:
        group["lr"] = 0.5
    replayed(beside, replay, 101)
