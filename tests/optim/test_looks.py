"""What the gate tells of its last step: the cosine that decided, and how much of the gradient was kept."""

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


def test_the_update_must_still_be_there():
    optimizer = stepped([3.0, 4.0, 0.0])
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match=r"kept\(\) reads the update"):
        optimizer.kept()
