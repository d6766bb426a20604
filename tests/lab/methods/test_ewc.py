import pytest
import torch
from pydantic import ValidationError
from torch.nn.functional import cross_entropy

from sfao.lab.methods.fisher import exact_fisher
from sfao.lab.methods.method import TaskView
from tests.lab.methods.short_runs import (
    assert_resumes_anywhere,
    events,
    learn,
    make,
    stream,
    way_from_the_first_task,
    weights,
)

STRONG = {"strength": 30.0}


def after_two_tasks(options, tasks, **changes):
    """A method that has ended two tasks, with the Fisher and the parameters at the end of each."""
    method, kept = make("ewc", tasks, options, **changes), []
    asked = events(tasks)
    a_task = len(asked) // 3
    for number, event in enumerate(asked[: 2 * a_task]):
        event(method)
        if number in (a_task - 1, 2 * a_task - 1):
            task = tasks.tasks[len(kept)]
            batches = list(task.train.batches(100))
            fisher = exact_fisher(TaskView(method.model, task.outputs), batches, method.parameters)
            kept.append((fisher, [p.detach().clone() for p in method.parameters]))
    return method, kept


def written_out(method, kept, strength):
    return sum(
        strength / 2 * (f * (p - a) ** 2).sum()
        for fisher, anchors in kept
        for f, p, a in zip(fisher, method.parameters, anchors, strict=True)
    )


@pytest.mark.parametrize("scenario", ["domain", "task", "class"])
def test_a_gradient_step_is_one_on_loss_and_all_penalties(scenario):
    tasks = stream(scenario)
    method, kept = after_two_tasks({**STRONG, "step": "gradient"}, tasks)
    task = tasks.tasks[2]
    inputs, targets = next(task.train.batches(5))
    for p in method.parameters:
        p.data.add_(0.1 * torch.randn_like(p))
    loss = cross_entropy(method.model(inputs)[:, task.outputs], targets) + written_out(method, kept, 30.0)
    expected = [
        p.detach() - 0.1 * g
        for p, g in zip(method.parameters, torch.autograd.grad(loss, method.parameters), strict=True)
    ]
    method.step(inputs, targets, task.outputs)
    for p, wanted in zip(method.parameters, expected, strict=True):
        torch.testing.assert_close(p.detach(), wanted, rtol=1e-4, atol=1e-6)


def test_a_proximal_step_zeroes_the_gradient_of_its_objective():
    """At the new parameters: penalty' + (theta - theta_half) / lr = 0, with theta_half from the loss alone."""
    tasks = stream()
    method, kept = after_two_tasks(STRONG, tasks)
    inputs, targets = next(tasks.tasks[2].train.batches(5))
    loss = cross_entropy(method.model(inputs), targets)
    gradients = torch.autograd.grad(loss, method.parameters)
    half = [p.detach() - 0.1 * g for p, g in zip(method.parameters, gradients, strict=True)]
    method.step(inputs, targets, slice(0, 2))
    penalty = torch.autograd.grad(written_out(method, kept, 30.0), method.parameters)
    for p, g, h in zip(method.parameters, penalty, half, strict=True):
        torch.testing.assert_close(g + (p.detach() - h) / 0.1, torch.zeros_like(g), rtol=0, atol=1e-4)


def test_online_keeps_a_decayed_fisher_and_the_latest_anchor():
    method, kept = after_two_tasks({**STRONG, "variant": "online", "decay": 0.25}, stream())
    for found, first, second in zip(method.penalty.weights, kept[0][0], kept[1][0], strict=True):
        torch.testing.assert_close(found, 30 * (0.25 * first + second))
    assert all(map(torch.equal, method.penalty.anchors, kept[1][1]))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_strength_it_is_sgd(momentum):
    tasks = stream()
    plain = learn(make("sgd", tasks, momentum=momentum), tasks)
    method = learn(make("ewc", tasks, {"strength": 0}, momentum=momentum), tasks)
    assert torch.equal(weights(method), weights(plain))
    assert method.memory_bytes == 0


@pytest.mark.parametrize("form", ["ema", "heavy_ball"])
def test_the_proximal_step_stays_put_at_any_strength(form):
    tasks = stream()
    method = make("ewc", tasks, {"strength": 1e12}, momentum=0.9, momentum_form=form)
    asked = events(tasks)
    for event in asked[: len(asked) // 3]:
        event(method)
    before = weights(method)
    mattered = torch.cat([w.flatten() for w in method.penalty.weights]) > 1e6
    for event in asked[len(asked) // 3 :]:
        event(method)
    assert mattered.any()
    torch.testing.assert_close(weights(method)[mattered], before[mattered], rtol=1e-3, atol=1e-3)
    assert method.concerns() == []


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("scenario", ["domain", "task", "class"])
def test_it_holds_on_to_what_the_first_task_needs(scenario, model):
    tasks = stream(scenario)
    plain, method = (
        way_from_the_first_task(*chosen, tasks, model) for chosen in (("sgd", {}), ("ewc", {"strength": 1e3}))
    )
    assert method < plain / 2


def test_samples_limit_the_fisher():
    tasks = stream()
    method = make("ewc", tasks, {"fisher_samples": 7})
    task = tasks.tasks[0]
    inputs, targets = map(torch.cat, zip(*method.batches(task, torch.Generator()), strict=True))
    expected = exact_fisher(TaskView(method.model, task.outputs), [(inputs[:7], targets[:7])], method.parameters)
    for found, wanted in zip(method.fisher(task, torch.Generator()), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    everything = make("ewc", tasks).fisher(task, torch.Generator())
    assert not torch.allclose(everything[0], expected[0], rtol=1e-2)


@pytest.mark.parametrize(
    "options",
    [
        STRONG,
        {**STRONG, "variant": "online", "decay": 0.5, "fisher": "batch"},
        {**STRONG, "step": "gradient", "strength": 1.0, "fisher_samples": 9},
    ],
)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_resumes_anywhere(options, momentum):
    assert_resumes_anywhere("ewc", stream(), options, momentum=momentum)


def test_it_resumes_with_a_cnn_and_a_head_a_task():
    assert_resumes_anywhere("ewc", stream("task"), STRONG, "cnn")


@pytest.mark.parametrize(("step", "tensors"), [("proximal", 3), ("gradient", 2)])
def test_bytes_are_those_of_a_few_tensors_a_parameter_however_many_tasks(step, tensors):
    tasks = stream()
    method = make("ewc", tasks, {"strength": 1.0, "step": step})
    assert method.memory_bytes == 0
    learn(method, tasks)
    assert method.memory_bytes == tensors * 4 * sum(p.numel() for p in method.parameters)


def test_concerns():
    tasks = stream()
    assert learn(make("ewc", tasks, STRONG), tasks).concerns() == []
    assert make("ewc", tasks, STRONG).concerns() == []
    assert "`strength` is 0" in make("ewc", tasks, {"strength": 0}).concerns()[0]
    assert "lost in rounding" in learn(make("ewc", tasks, {"strength": 1e-9}), tasks).concerns()[0]

    idle = make("ewc", tasks, STRONG)
    idle.penalty.add([torch.zeros_like(p) for p in idle.parameters])
    assert idle.concerns() == []  # nothing was trained under it yet
    idle.begin_task(1, tasks.tasks[1])
    assert "no parameter has any importance" in idle.concerns()[0]

    wild = make("ewc", tasks, {"strength": 8.0, "step": "gradient"})
    wild.penalty.add([torch.full_like(p, 20.5) for p in wild.parameters])
    wild.begin_task(1, tasks.tasks[1])
    (line,) = wild.concerns()
    assert "exceeds 20 (lr 0.1" in line
    assert "reached 20.5 with `strength` 8" in line


@pytest.mark.parametrize(
    ("name", "value"),
    [("strength", -1), ("strength", float("inf")), ("decay", 2), ("fisher", "wrong"), ("fisher_samples", 0), ("lr", 1)],
)
def test_bad_options_are_refused(name, value):
    with pytest.raises(ValidationError, match=name):
        make("ewc", stream(), {name: value})
