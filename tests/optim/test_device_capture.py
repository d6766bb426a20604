"""Steps that somebody has captured in a CUDA graph of their own. Without a GPU, a step that believes it is captured is
done at once, and doing it again stands for replaying it.
"""

from collections.abc import Callable
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from sfao import SFAO
from sfao.optim import device_path, gated_layers
from tests.on_device import DEVICE, HAS_GPU, gated_on
from tests.optim.beside import EVERY, PROJECT, Beside, Layers, flat, made_up, remembering

pytestmark = pytest.mark.usefixtures("_on_device")

LIVELY = {"accept_above": 0.6, "discard_below": 0.3}


@contextmanager
def capturing():
    with pytest.MonkeyPatch.context() as patch:
        if not HAS_GPU:
            for module in (device_path, gated_layers):
                patch.setattr(module, "is_capturing", lambda: True)
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
