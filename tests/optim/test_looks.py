"""What the gate tells of its last step: the cosine that decided, and how much of the gradient was kept."""

from math import isnan

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision


def stepped(gradient, remembered=((1.0, 0.0, 0.0),), **options):
    weight = nn.Parameter(torch.zeros(3))
    optimizer = SFAO([{"params": [weight], "name": "w"}], lr=1.0, memory="directions", **options)
    for direction in remembered:
        weight.grad = torch.tensor(direction)
        optimizer.remember()
    weight.grad = torch.tensor(gradient)
    optimizer.step()
    return optimizer


def test_a_projected_step_keeps_the_sine():
    optimizer = stepped([3.0, 4.0, 0.0], accept_above=0.9)
    assert optimizer.last_decisions == {"w": Decision.PROJECT}
    assert optimizer.last_cosines == {"w": pytest.approx(0.6)}
    assert optimizer.kept() == {"w": pytest.approx(0.8)}


def test_an_accepted_step_keeps_all():
    optimizer = stepped([3.0, 4.0, 0.0], accept_above=0.5)
    assert optimizer.last_cosines == {"w": pytest.approx(0.6)}
    assert optimizer.kept() == {"w": pytest.approx(1.0)}


def test_a_discarded_step_keeps_nothing():
    optimizer = stepped([-3.0, 4.0, 0.0], accept_above=0.5, discard_below=-0.5)
    assert optimizer.last_cosines == {"w": pytest.approx(-0.6)}
    assert optimizer.kept() == {"w": 0.0}


def test_with_nothing_to_compare_with_there_is_nothing_to_tell():
    optimizer = stepped([3.0, 4.0, 0.0], remembered=())
    assert optimizer.last_cosines == {}
    assert optimizer.kept() == {}


def test_a_zero_gradient_has_no_cosine():
    optimizer = stepped([0.0, 0.0, 0.0])
    assert optimizer.last_cosines == {}
    assert optimizer.kept() == {}


@pytest.mark.parametrize("to_none", [True, False])
def test_after_zero_grad_the_last_values_stay(to_none):
    optimizer = stepped([3.0, 4.0, 0.0])
    kept, risk = optimizer.kept(), optimizer.risk()
    optimizer.zero_grad(to_none)
    assert optimizer.kept() == kept
    assert optimizer.risk() == risk


@pytest.mark.parametrize("to_none", [True, False])
def test_once_asked_for_they_are_measured_at_every_step(to_none):
    optimizer = stepped([3.0, 4.0, 0.0])
    (parameter,) = optimizer.param_groups[0]["params"]
    optimizer.zero_grad(to_none)
    assert isnan(optimizer.risk())  # nobody had asked before it was gone
    assert isnan(optimizer.kept()["w"])
    parameter.grad = torch.tensor([3.0, 4.0, 0.0])
    optimizer.step()
    optimizer.zero_grad(to_none)
    assert optimizer.kept() == {"w": pytest.approx(0.8)}
    assert optimizer.risk() == pytest.approx(0, abs=1e-6)
