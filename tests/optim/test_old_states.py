"""States of before an option existed, damaged ones, and room for more directions."""

import copy

import pytest
import torch
from torch import nn

from sfao import SFAO, Gate, NonFiniteGradient, layer_groups
from sfao.gating.options import DEFAULTS
from sfao.gating.rule import Rule
from sfao.gating.rules import RULES, check_defaults
from sfao.optim.descent import ADDED_SETTINGS, Descent

ADDED = (*ADDED_SETTINGS, "rule")


def trained(**options) -> tuple[nn.Module, SFAO]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = SFAO(layer_groups(model), memory="directions", lr=0.1, momentum=0.9, **options)
    for _ in range(3):
        give(model)
        optimizer.remember()
        optimizer.step()
    return model, optimizer


def give(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)


def without(state: dict, names: tuple[str, ...]) -> dict:
    state = copy.deepcopy(state)
    for group in state["param_groups"]:
        for name in names:
            del group[name]
    return state


def test_a_state_without_the_new_settings_goes_on_as_it_was():
    model, optimizer = trained(decoupled_weight_decay=True, weight_decay=0.1)
    other_model = copy.deepcopy(model)
    other = SFAO(layer_groups(other_model), memory="directions", lr=9.0)
    state = without(optimizer.state_dict(), ADDED)
    del state["gate"]["layers"]["(root)"]["rule_state"], state["gate"]["layers"]["(root)"]["seals"]
    other.load_state_dict(state)
    for one, two in zip(model.parameters(), other_model.parameters(), strict=True):
        one.grad = torch.ones_like(one)
        two.grad = torch.ones_like(two)
    optimizer.step()
    other.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other_model.parameters(), strict=True))
    assert other.counts == optimizer.counts


def test_so_does_plain_descent():
    parameter = nn.Parameter(torch.ones(3))
    descent = Descent([parameter], lr=0.1, momentum=0.9, momentum_form="ema")
    state = without(descent.state_dict(), tuple(ADDED_SETTINGS))
    descent.load_state_dict(state)
    parameter.grad = torch.ones(3)
    descent.step()
    assert descent.param_groups[0]["decoupled_weight_decay"] is True


def test_an_option_of_a_rule_that_came_later_has_its_default(monkeypatch):
    _, optimizer = trained()
    state = optimizer.state_dict()
    monkeypatch.setitem(DEFAULTS, "inertia", 0.5)
    other = SFAO(layer_groups(nn.Linear(4, 3)), memory="directions")
    other.load_state_dict(state)
    assert other.param_groups[0]["inertia"] == 0.5


@pytest.mark.parametrize("values", [[1.0], [0.0, float("nan")], [0.0, 0.0, 0.0], ["x", 0.0]])
def test_a_damaged_state_of_the_rule_is_refused_and_nothing_changes(values):
    _, optimizer = trained()
    state = optimizer.state_dict()
    state["gate"]["layers"]["(root)"]["rule_state"] = values
    other = SFAO(layer_groups(nn.Linear(4, 3)), memory="directions")
    with pytest.raises(RuntimeError, match="`state_dict` must"):
        other.load_state_dict(state)
    assert other.memory_bytes == 0


def test_momentum_that_is_none_or_of_no_parameter():
    model, optimizer = trained()
    state = optimizer.state_dict()
    state["state"] = {0: {"momentum_buffer": None}}
    optimizer.load_state_dict(state)
    give(model)
    optimizer.step()
    state["state"] = {7: {"momentum_buffer": torch.zeros(3)}}
    with pytest.raises(RuntimeError, match="`state_dict` must be of this optimizer"):
        optimizer.load_state_dict(state)


def test_a_task_boundary_drops_momentum_and_nothing_else():
    model, optimizer = trained()
    optimizer.state[model.weight]["mine"] = 1
    optimizer.end_task()
    assert optimizer.state[model.weight] == {"mine": 1}


def test_room_for_exactly_so_many_more():
    _, optimizer = trained(capacity=5)
    optimizer.gate.make_room(4)
    assert optimizer.gate.layers[0].memory.capacity == 7
    for wrong in (0, -3, 2.5, "x"):
        with pytest.raises(ValueError, match="`directions` must be a whole number of at least 1"):
            optimizer.gate.make_room(wrong)
    with pytest.raises(ValueError, match=r"`memory_budget` limits what a gate holds; make_room\(\) needs"):
        Gate(layer_groups(nn.Linear(4, 3)), memory="directions", memory_budget="8KiB").make_room(3)


def test_a_global_gate_with_room_takes_another_group():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    gate = Gate(layer_groups(model), memory="directions", granularity="global", capacity=5)
    gate.make_room(9)
    gate.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    assert repr(gate) == "Gate(1 layer, granularity='global', memory='directions', capacity=5)"


def test_options_of_another_rule_are_refused(monkeypatch):
    monkeypatch.setitem(RULES, "late", Rule({}, lambda options: None, lambda *numbers: (True, True, 0.0, 0.0)))
    groups = layer_groups(nn.Linear(4, 3))
    with pytest.raises(ValueError, match="`discard_below` is an option of the rule 'cosine', got it with rule='late'"):
        SFAO(groups, rule="late", discard_below=0.1)
    groups[0]["strict"] = True
    with pytest.raises(ValueError, match="`strict` is an option of the rule 'cosine'"):
        SFAO(groups, rule="late")


def test_rules_may_not_disagree_about_a_default():
    other = Rule({"accept_above": 0.1}, lambda options: None, RULES["cosine"].judge)
    with pytest.raises(ValueError, match=r"`accept_above` must have one default, got 0\.1 of the rule 'other'"):
        check_defaults({**RULES, "other": other})


def test_a_gradient_that_is_not_finite_has_a_public_name():
    model, optimizer = trained()
    model.weight.grad[0, 0] = float("nan")
    with pytest.raises(NonFiniteGradient):
        optimizer.step()
