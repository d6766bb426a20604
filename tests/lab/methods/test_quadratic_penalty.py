"""EWC and SI: their penalties, their importances, and the two ways to descend."""

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn
from torch.nn.functional import cross_entropy

from sfao.lab.methods.ewc import EWC, EWCOptions
from sfao.lab.methods.fisher import exact_fisher
from sfao.lab.methods.method import TaskView
from sfao.lab.methods.optimizers import Descent
from sfao.lab.methods.quadratic_penalty import steady_step
from sfao.lab.methods.si import SI, SIOptions
from tests.lab.methods.short_runs import EVENTS, STEPS, events, learn, make, make_training, play, stream, weights

SCENARIOS = ("domain", "task", "class")

# -- The penalty -----------------------------------------------------------------------------------------------


def penalized(step="proximal", tasks=3, model=None, **training):
    """A method on a small model with the penalties of several tasks, and the weights and anchors of each."""
    model = nn.Linear(2, 3).double() if model is None else model
    method, made = EWC(model, make_training(**training), EWCOptions(strength=1.0, step=step)), []
    for _ in range(tasks):
        importances = [torch.rand_like(p).detach() * (torch.rand_like(p) > 0.3) for p in method.parameters]
        method.add_penalty(importances)
        made.append((importances, [p.detach().clone() for p in method.parameters]))
        move(method)
    return method, made


@torch.no_grad()
def move(method):
    for p in method.parameters:
        p.add_(torch.randn_like(p))


def update(method, gradient=torch.zeros_like):
    for p in method.parameters:
        p.grad = gradient(p)
    method.update(slice(0, 2))


def written_out(parameters, made):
    return sum(
        (w * (p - a) ** 2).sum() / 2 for own, anchors in made for w, p, a in zip(own, parameters, anchors, strict=True)
    )


def test_a_gradient_step_descends_on_the_sum_of_the_separate_penalties():
    method, made = penalized("gradient", lr=0.5)
    expected = torch.autograd.grad(written_out(method.parameters, made), method.parameters)
    before = [p.detach().clone() for p in method.parameters]
    update(method, torch.ones_like)
    for p, old, pull in zip(method.parameters, before, expected, strict=True):
        torch.testing.assert_close(p.detach(), old - 0.5 * (pull + 1))


def test_a_proximal_step_ends_at_the_minimizer():
    method, made = penalized(lr=0.7)
    bias = method.parameters[1]
    half = bias.detach().clone()
    update(method)
    for i, start in enumerate(half.tolist()):
        terms = [(float(own[1][i]), float(anchors[1][i])) for own, anchors in made]

        def objective(x, start=start, terms=terms):
            return sum(w * (x - a) ** 2 / 2 for w, a in terms) + (x - start) ** 2 / (2 * 0.7)

        assert float(bias.detach()[i]) == pytest.approx(minimize_scalar(objective).x, abs=1e-6)


def test_a_proximal_step_follows_the_learning_rate():
    """As if that rate had been configured; also after a resume."""
    (changed, made), (configured, _) = penalized(lr=0.7), penalized(tasks=0, lr=0.1)
    for importances, anchors in made:
        for p, anchor in zip(configured.parameters, anchors, strict=True):
            p.data.copy_(anchor)
        configured.add_penalty(importances)
    before = [p.detach().clone() for p in changed.parameters]
    changed.set_lr(0.1)
    resumed, _ = penalized(tasks=0, lr=0.7)
    resumed.load_state_dict(changed.state_dict())
    ends = []
    for method in (configured, changed, resumed):
        for p, old in zip(method.parameters, before, strict=True):
            p.data.copy_(old)
        update(method, torch.ones_like)
        ends.append(weights(method))
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


@pytest.mark.parametrize("weight", [1e12, 1e38])
def test_an_enormous_penalty_holds_the_parameters_where_they_were(weight):
    method, _ = penalized(tasks=0, model=nn.Linear(2, 3), lr=100.0)
    anchor = weights(method)
    method.add_penalty([torch.full_like(p, weight) for p in method.parameters])
    move(method)
    update(method)
    torch.testing.assert_close(weights(method), anchor, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("momentum", "form", "expected"), [(0.0, "ema", 0.1), (0.9, "ema", 0.1), (0.9, "heavy_ball", 1.0)]
)
def test_both_steps_rest_where_loss_and_penalty_balance(momentum, form, expected):
    """Loss (theta - 1)^2 / 2, penalty 3/2 theta^2: the least is at 1/4, whatever the momentum."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    method, _ = penalized(tasks=0, model=model, lr=0.1, momentum=momentum, momentum_form=form)
    assert steady_step(method.training, 0.1) == pytest.approx(expected)
    assert isinstance(method.optimizer, Descent)
    method.add_penalty([torch.full_like(model.weight, 3.0)])
    for _ in range(500):
        update(method, lambda p: p.detach() - 1)
    assert float(model.weight.detach()) == pytest.approx(0.25)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("name", ["ewc", "si"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_holds_on_to_what_the_first_task_needs(name, scenario, optimizer):
    """Later tasks move the parameters less, weighted with the first task's Fisher information."""
    tasks, found = stream(scenario), []
    step = "proximal" if optimizer == "sgd" else "gradient"
    for chosen in (("sgd", {}), (name, {"strength": 1e3, "step": step})):
        method = make(chosen[0], tasks, chosen[1], optimizer=optimizer, lr=0.1 if optimizer == "sgd" else 0.01)
        play(method, events(tasks)[:EVENTS])
        parameters = list(method.model.parameters())
        start = [parameter.detach().clone() for parameter in parameters]
        view = TaskView(method.model, tasks.tasks[0].outputs)
        fisher = exact_fisher(view, tasks.tasks[0].train.batches(100), parameters)
        play(method, events(tasks)[EVENTS:])
        ways = (parameter.detach() - old for parameter, old in zip(parameters, start, strict=True))
        found.append(sum(float((own * way**2).sum()) for own, way in zip(fisher, ways, strict=True)))
    assert found[1] < found[0] / 2


@pytest.mark.parametrize("name", ["ewc", "si"])
def test_a_penalty_without_effect_is_a_concern(name):
    tasks = stream()
    plain = learn(make("sgd", tasks, momentum=0.9), tasks)
    method = learn(make(name, tasks, {"strength": 0}, momentum=0.9), tasks)
    assert torch.equal(weights(method), weights(plain))
    assert "`strength` is 0" in method.concerns()[0]
    assert "lost in rounding" in learn(make(name, tasks, {"strength": 1e-9}), tasks).concerns()[0]
    acting = learn(make(name, tasks, {"strength": 30.0}), tasks)
    assert acting.concerns() == []
    tensors = 3 if name == "ewc" else 4  # however many tasks
    assert acting.memory_bytes == tensors * 4 * sum(p.numel() for p in acting.parameters)


# -- EWC -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["separate", "online"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_ewc_steps_on_the_loss_and_the_fisher_of_every_task(scenario, variant):
    tasks, kept = stream(scenario), []
    options = {"strength": 30.0, "step": "gradient", "variant": variant, "decay": 0.25}
    method = make("ewc", tasks, options, lr=0.1)
    for event in events(tasks)[: 2 * EVENTS]:
        event(method)
        if event.what == "end":
            done = tasks.tasks[event.number]
            fisher = exact_fisher(TaskView(method.model, done.outputs), done.train.batches(100), method.parameters)
            kept.append(([30.0 * own for own in fisher], [p.detach().clone() for p in method.parameters]))
    if variant == "online":  # a decayed Fisher, and the latest anchor
        (first, _), (second, anchors) = kept
        kept = [([0.25 * old + new for old, new in zip(first, second, strict=True)], anchors)]
    task = tasks.tasks[2]
    inputs, targets = next(task.train.batches(5))
    for p in method.parameters:
        p.data.add_(0.1 * torch.randn_like(p))
    loss = cross_entropy(method.model(inputs)[:, task.outputs], targets) + written_out(method.parameters, kept)
    gradients = torch.autograd.grad(loss, method.parameters)
    expected = [p.detach() - 0.1 * g for p, g in zip(method.parameters, gradients, strict=True)]
    method.step(inputs, targets, task.outputs)
    for p, wanted in zip(method.parameters, expected, strict=True):
        torch.testing.assert_close(p.detach(), wanted, rtol=1e-4, atol=1e-6)


def test_samples_limit_the_fisher():
    tasks = stream()
    method = make("ewc", tasks, {"fisher_samples": 7})
    task = tasks.tasks[0]
    inputs, targets = map(torch.cat, zip(*method.batches(task, torch.Generator()), strict=True))
    expected = exact_fisher(TaskView(method.model, task.outputs), [(inputs[:7], targets[:7])], method.parameters)
    for found, wanted in zip(method.measure_fisher(task, torch.Generator()), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    everything = make("ewc", tasks).measure_fisher(task, torch.Generator())
    assert not torch.allclose(everything[0], expected[0], rtol=1e-2)


# -- SI --------------------------------------------------------------------------------------------------------


class Quadratic(SI):
    """The loss is curvature / 2 (theta - target)^2 of a single parameter; a batch is (curvature, target)."""

    def loss(self, inputs, targets, outputs):
        return inputs / 2 * (self.model.weight[0, 0] - targets) ** 2


def quadratic(step="proximal", lr=0.25):
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    return Quadratic(model, make_training(lr=lr), SIOptions(strength=1.0, step=step, damping=0.5))


@pytest.mark.parametrize("step", ["proximal", "gradient"])
def test_the_path_integral_of_a_quadratic_by_hand(step):
    """Loss 1/2 (theta - 1)^2 from 0 with lr 1/4: g = -1, -3/4; moves 1/4, 3/16; omega = 1/4 + 9/64 = 25/64."""
    method = quadratic(step)
    for _ in range(2):
        method.step(torch.tensor(1.0), torch.tensor(1.0), slice(0, 1))
    assert float(method.model.weight.detach()) == 7 / 16
    assert float(method.gains[0]) == 25 / 64

    method.end_task(0, None, torch.Generator())
    omega = (25 / 64) / ((7 / 16) ** 2 + 0.5)
    assert float(method.weights[0]) == pytest.approx(2 * omega)
    assert float(method.anchors[0]) == 7 / 16
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


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_gains_sum_to_the_loss_that_was_removed(optimizer):
    tasks = stream("task")
    task = tasks.tasks[1]
    method = make("si", tasks, {"step": "gradient"}, lr=1e-3 if optimizer == "sgd" else 1e-5, optimizer=optimizer)
    inputs, targets = next(task.train.batches(100))

    def loss():
        return float(cross_entropy(method.model(inputs)[:, task.outputs], targets).detach())

    before = loss()
    for _ in range(40 * STEPS):
        method.step(inputs, targets, task.outputs)
    removed = before - loss()
    assert removed > 0.001
    assert sum(float(gain.sum()) for gain in method.gains) == pytest.approx(removed, rel=0.02)
