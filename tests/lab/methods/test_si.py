import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sfao.lab.methods.si import SI, SIOptions
from tests.lab.methods.short_runs import (
    assert_resumes_anywhere,
    events,
    learn,
    make,
    make_training,
    stream,
    way_from_the_first_task,
    weights,
)


class Quadratic(SI):
    """The loss is curvature / 2 (theta - target)^2 of a single parameter; a batch is (curvature, target)."""

    def loss(self, inputs, targets, outputs):
        return inputs / 2 * (self.model.weight[0, 0] - targets) ** 2


def quadratic(strength=1.0, step="proximal", lr=0.25):
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    return Quadratic(model, make_training(lr=lr), SIOptions(strength=strength, step=step, damping=0.5))


@pytest.mark.parametrize("step", ["proximal", "gradient"])
def test_the_path_integral_of_a_quadratic_by_hand(step):
    """Loss 1/2 (theta - 1)^2 from 0 with lr 1/4: g = -1, -3/4; moves 1/4, 3/16; omega = 1/4 + 9/64 = 25/64."""
    method = quadratic(step=step)
    for _ in range(2):
        method.step(torch.tensor(1.0), torch.tensor(1.0), slice(0, 1))
    assert float(method.model.weight.detach()) == 7 / 16
    assert float(method.gains[0]) == 25 / 64

    method.end_task(0, None, torch.Generator())
    omega = (25 / 64) / ((7 / 16) ** 2 + 0.5)
    assert float(method.penalty.weights[0]) == pytest.approx(2 * omega)
    assert float(method.penalty.anchors[0]) == 7 / 16
    assert not method.gains[0].any()

    # A second task, loss 1/2 theta^2: g = 7/16 without the penalty, whatever the penalty does to the movement.
    method.step(torch.tensor(1.0), torch.tensor(0.0), slice(0, 1))
    here = float(method.model.weight.detach())
    # The penalty's gradient is zero at the anchor; its proximal step pulls the way 7/64 back by 1 / (1 + 2 omega lr).
    way = 7 / 64 if step == "gradient" else 7 / 64 / (1 + omega / 2)
    assert here == pytest.approx(7 / 16 - way)
    assert float(method.gains[0]) == pytest.approx(7 / 16 * way)
    method.step(torch.tensor(1.0), torch.tensor(0.0), slice(0, 1))
    gain = 7 / 16 * way + here * (here - float(method.model.weight.detach()))
    assert float(method.gains[0]) == pytest.approx(gain)


def test_an_importance_below_zero_counts_as_none():
    method = quadratic(lr=0.0)
    method.gains[0].fill_(-3.0)
    method.end_task(0, None, torch.Generator())
    assert float(method.penalty.weights[0]) == 0


@pytest.mark.parametrize("scenario", ["domain", "task"])
def test_the_gains_sum_to_the_loss_that_was_lost(scenario):
    tasks = stream(scenario)
    task = tasks.tasks[1]
    method = make("si", tasks, lr=1e-3)
    inputs, targets = next(task.train.batches(100))

    def loss():
        return float(cross_entropy(method.model(inputs)[:, task.outputs], targets).detach())

    before = loss()
    for _ in range(200):
        method.step(inputs, targets, task.outputs)
    lost = before - loss()
    assert lost > 0.01
    assert sum(float(gain.sum()) for gain in method.gains) == pytest.approx(lost, rel=0.01)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_strength_it_is_sgd(momentum):
    tasks = stream()
    plain = learn(make("sgd", tasks, momentum=momentum), tasks)
    assert torch.equal(weights(learn(make("si", tasks, {"strength": 0}, momentum=momentum), tasks)), weights(plain))


def test_at_any_strength_important_parameters_stay_put():
    tasks = stream()
    method = make("si", tasks, {"strength": 1e12}, momentum=0.9, momentum_form="heavy_ball")
    asked = events(tasks)
    for event in asked[: len(asked) // 3]:
        event(method)
    before = weights(method)
    mattered = torch.cat([w.flatten() for w in method.penalty.weights]) > 1e6
    for event in asked[len(asked) // 3 :]:
        event(method)
    assert mattered.any()
    torch.testing.assert_close(weights(method)[mattered], before[mattered], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("scenario", ["domain", "task", "class"])
def test_it_holds_on_to_what_the_first_task_needs(scenario, model):
    tasks = stream(scenario)
    plain, method = (
        way_from_the_first_task(*chosen, tasks, model) for chosen in (("sgd", {}), ("si", {"strength": 1e3}))
    )
    assert method < plain / 2


def test_heads_of_other_tasks_have_no_importance():
    tasks = stream("task")
    method = make("si", tasks)
    for event in events(tasks)[: len(events(tasks)) // 3]:
        event(method)
    head = method.penalty.weights[-2]
    assert head.shape[0] == 6
    assert head[:2].any()
    assert not head[2:].any()


@pytest.mark.parametrize("step", ["proximal", "gradient"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_resumes_anywhere(step, momentum):
    assert_resumes_anywhere("si", stream(), {"strength": 1.0, "step": step}, momentum=momentum)


def test_it_resumes_with_a_cnn_and_a_head_a_task():
    assert_resumes_anywhere("si", stream("task"), {"strength": 10.0}, "cnn")


def test_bytes_are_those_of_four_tensors_a_parameter():
    tasks = stream()
    method = learn(make("si", tasks), tasks)
    assert method.memory_bytes == 4 * 4 * sum(p.numel() for p in method.parameters)


def test_concerns():
    tasks = stream()
    assert learn(make("si", tasks), tasks).concerns() == []
    assert make("si", tasks).concerns() == []
    assert "`strength` is 0" in make("si", tasks, {"strength": 0}).concerns()[0]
    assert "lost in rounding" in learn(make("si", tasks, {"strength": 1e-9}), tasks).concerns()[0]
    for strength in (100.0, 1e3):  # beyond the bound, and far enough beyond for the importances to be NaN
        wild = learn(make("si", tasks, {"strength": strength, "step": "gradient"}), tasks)
        assert "exceeds 20 (lr 0.1" in wild.concerns()[0]
