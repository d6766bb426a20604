"""A new rule is its own file and a line in the dict: host, kernels, twin and state read the rest from the value."""

import copy

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision, layer_groups
from sfao.checks import check_at_least_zero
from sfao.gating.options import DEFAULTS
from sfao.gating.rule import Rule
from sfao.gating.rules import RULES
from sfao.optim._host_path import HostPath
from sfao.optim.layers import Layer
from sfao.optim.reference import ReferenceSFAO
from tests.on_device import DEVICE, gated_on
from tests.optim.beside import made_up


def judge(largest, smallest, inertia, unused, unneeded, unread, mean, steps):
    """Accept what is above the running mean of the cosines so far, discard what is far below it."""
    accepts = largest > mean
    projects = largest > 0.6 * mean
    return accepts, projects, inertia * mean + (1 - inertia) * largest, steps + 1


RUNNING = Rule({"inertia": 0.5}, lambda options: check_at_least_zero("inertia", options["inertia"]), judge, (0.2, 0.0))


@pytest.fixture
def _running(monkeypatch):
    monkeypatch.setitem(RULES, "running", RUNNING)
    monkeypatch.setitem(DEFAULTS, "inertia", 0.5)
    for module in ("sfao.optim.gate", "sfao.optim.sfao"):
        monkeypatch.setattr(f"{module}.OPTION_NAMES", tuple(DEFAULTS))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"a": nn.Linear(9, 6), "b": nn.Linear(6, 5, bias=False)})


def give(model: nn.Module, gradients: list[torch.Tensor]) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone().to(parameter.device)


@pytest.mark.usefixtures("_running", "_on_device")
def test_host_device_and_twin_decide_alike_and_keep_the_same_state():
    models = [network(), network().to(DEVICE), network()]
    options = {"rule": "running", "inertia": 0.7, "samples": 3, "lr": 0.01}
    host, device = (SFAO(layer_groups(model), **options) for model in models[:2])
    groups = [
        {**group, "params": list(models[2][group["name"]].parameters())}
        for group in copy.deepcopy([{k: v for k, v in g.items() if k != "params"} for g in host.param_groups])
    ]
    twin = ReferenceSFAO(groups)
    for number in range(6):
        gradients = made_up(models[0], 0, number)
        for model, memory in zip(models, (host, device, twin), strict=True):
            give(model, gradients)
            memory.remember()
    decided = set()
    for number in range(20, 32):
        gradients = made_up(models[0], number % 3, number)
        for model in models:
            give(model, gradients)
        with gated_on():
            host.step()
        with gated_on(DEVICE.type):
            device.step()
            assert not isinstance(device.gate._path, HostPath)
        assert host.last_decisions == device.last_decisions == twin.step()
        decided |= set(host.last_decisions.values())
    assert decided == set(Decision)
    device.counts  # noqa: B018, brings the state home
    for one, other in zip(host.gate.layers, device.gate.layers, strict=True):
        assert one.rule_state[1] == other.rule_state[1] == 12
        assert one.rule_state == pytest.approx(other.rule_state, abs=1e-5)
        assert one.rule_state == pytest.approx(twin.layers[one.name].rule_state, abs=1e-5)


@pytest.mark.usefixtures("_running")
def test_its_state_is_saved_and_its_options_are_checked():
    model = network()
    optimizer = SFAO(layer_groups(model), rule="running", lr=0.0)
    for number in range(4):
        give(model, made_up(model, 0, number))
        optimizer.remember()
        optimizer.step()
    layer: Layer = optimizer.gate.layers[0]
    assert layer.rule_state != RUNNING.initial_state()
    other = SFAO(layer_groups(network()), rule="running")
    other.load_state_dict(optimizer.state_dict())
    assert other.gate.layers[0].rule_state == layer.rule_state
    with pytest.raises(ValueError, match="`inertia` must be a finite number of at least 0, got -1"):
        SFAO(layer_groups(network()), rule="running", inertia=-1)
    optimizer.param_groups[0]["rule"] = "cosine"
    with pytest.raises(ValueError, match="`rule` is fixed when a layer is made"):
        optimizer.step()


def test_a_rule_of_too_many_options_is_refused():
    with pytest.raises(ValueError, match="a rule must have at most 4 options and 2 values of state, got 5 and 0"):
        Rule(dict.fromkeys("abcde", 0.0), lambda options: None, judge)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match=r"`rule` must be one of cosine.*, got 'cosin' \(did you mean 'cosine'\?\)"):
        SFAO(layer_groups(network()), rule="cosin")
