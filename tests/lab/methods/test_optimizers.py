"""The descent that all methods share: torch's SGD, and the paper's momentum and weight decay."""

import pytest
import torch
from torch import nn

from sfao.lab.methods.optimizers import Descent


def take_steps(optimizer, parameters, steps=5):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_heavy_ball_is_torch_s(momentum):
    torch.manual_seed(0)
    own, theirs = ([nn.Parameter(torch.full((3, 2), 0.5))] for _ in range(2))
    take_steps(Descent(own, 0.1, momentum), own)
    take_steps(torch.optim.SGD(theirs, 0.1, momentum), theirs)
    assert torch.equal(own[0], theirs[0])


def test_an_average_and_decoupled_decay_as_the_paper_writes_them():
    own = nn.Parameter(torch.linspace(-1, 1, 6))
    theta, m = own.detach().clone().double(), torch.zeros(6, dtype=torch.float64)
    optimizer = Descent([own], 0.1, 0.9, "ema", 0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        own.grad = torch.randn(6, generator=generator)
        m = 0.9 * m + 0.1 * own.grad.double()
        theta = (1 - 0.1 * 0.01) * theta - 0.1 * m
        optimizer.step()
        torch.testing.assert_close(own.detach().double(), theta, rtol=0, atol=1e-6)


def test_hooks_of_others_run_once():
    calls = []
    own = nn.Parameter(torch.ones(3))
    torch.optim.SGD([nn.Parameter(torch.ones(1))])
    optimizer = Descent([own], 0.1)
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    take_steps(optimizer, [own], 3)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"lr": -1}, "`lr` must be a finite number of at least 0, got -1"),
        ({"lr": 0.1, "momentum": 1}, r"`momentum` must be in \[0, 1\), got 1"),
        ({"lr": 0.1, "momentum_form": "nesterov"}, "`momentum_form` must be one of heavy_ball, ema"),
        ({"lr": 0.1, "weight_decay": float("nan")}, "`weight_decay` must be a finite number"),
    ],
)
def test_bad_settings(wrong, rule):
    with pytest.raises(ValueError, match=rule):
        Descent([nn.Parameter(torch.ones(1))], **wrong)
