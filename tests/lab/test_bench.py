"""The benchmark times what it says: the gate's decisions, the bytes, the released code's arithmetic."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from sfao.lab.bench import Case, ReleasedLoop, Training, plan_groups, time_steps

CPU = torch.device("cpu")


def test_cases_of_a_group_start_with_sgd_and_what_would_hold_too_much_is_left_out():
    groups, left_out = plan_groups(["cnn"], [10, 200], [1], max_bytes=10**8)
    assert {title: [case.name for case in cases] for title, cases in groups.items()} == {
        "cnn, DriftBound": ["SGD", "AdamW", "DriftBound"],
        "cnn, 10 directions": ["SGD", "released-code loop", "SFAO dense", "SFAO factored rank 1"],
        "cnn, 200 directions": ["SGD", "SFAO factored rank 1"],
    }
    assert left_out == [
        "cnn, released-code loop, 200 directions: 0.9 GB",
        "cnn, SFAO dense, 200 directions: 0.9 GB",
    ]


@pytest.mark.parametrize("case", [Case("mlp", "SFAO dense", 20), Case("mlp", "SFAO factored", 20, rank=2)])
def test_the_memory_is_full_as_large_as_planned_and_every_layer_projects(case):
    training = Training(case, CPU, 8)
    dense = replace(case, rank=0).dense_bytes
    assert training.memory_bytes == dense if case.rank == 0 else 0 < training.memory_bytes < dense / 20
    for _ in range(3):
        training.step()
    assert [counts["project"] for counts in training.optimizer.counts.values()] == [3, 3]
    assert all(sum(counts.values()) == 3 for counts in training.optimizer.counts.values())


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "DriftBound", "released-code loop", "SFAO dense"])
def test_every_case_learns_from_its_batches(kind):
    training = Training(Case("mlp", kind, 5), CPU, 8)
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    training.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, training.model.parameters(), strict=True))
    assert (training.memory_bytes == 0) == (kind in ("SGD", "AdamW"))


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_drift_bound_acts_at_every_projection(model):
    training = Training(Case(model, "DriftBound"), CPU, 2)
    for _ in range(16):
        training.step()
    acted = [value for name, value in training.memory.telemetry().items() if name.endswith("/acted")]
    assert max(acted) == 2


def test_the_released_loop_subtracts_one_direction_after_the_other():
    model = nn.Linear(5, 3)
    optimizer = ReleasedLoop(model, 4)
    gradient = torch.randn(18)
    model.weight.grad, model.bias.grad = gradient[:15].view(3, 5).clone(), gradient[15:].clone()
    optimizer.step()
    for direction in optimizer.directions:
        assert direction.norm() == pytest.approx(1, abs=1e-6)
        gradient = gradient - (gradient @ direction) * direction
    left = torch.cat([model.weight.grad.flatten(), model.bias.grad])
    assert torch.allclose(left, gradient, atol=1e-6)
    assert optimizer.memory_bytes == 4 * 18 * 4


def test_steps_take_turns_and_the_first_of_a_turn_is_not_counted():
    called = []
    steps = {name: lambda name=name: called.append(name) for name in ("a", "b")}
    times = time_steps(steps, CPU, turns=4, seconds=60)
    assert "".join(called) == "aaabbb" + 4 * ("a" * 9 + "b" * 9)
    assert [len(measured) for measured in times.values()] == [4, 4]
    assert len(time_steps(steps, CPU, turns=100, seconds=0)["a"]) == 3
