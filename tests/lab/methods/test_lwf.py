"""LwF: its loss, which outputs it holds on to, its state."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from sfao.lab.methods.lwf import distillation_loss
from tests.lab.methods.short_runs import events, make, play, stream, weights


def test_equal_answers_are_no_distance_and_pull_nowhere():
    logits = torch.randn(5, 3, requires_grad=True)
    distance = distillation_loss(logits, logits.detach(), 2.0)
    (gradient,) = torch.autograd.grad(distance, logits)
    assert abs(distance) < 1e-6
    assert gradient.abs().max() < 1e-6


@pytest.mark.parametrize("scenario", ["domain", "task"])
def test_a_step_learns_the_batch_and_the_answers_before_the_task(scenario):
    tasks = stream(scenario)
    run = make("lwf", tasks, {"strength": 0.5, "temperature": 3.0}, lr=1.0)
    play(run, events(tasks)[:7])
    teacher = {name: value.clone() for name, value in run.model.state_dict().items()}
    play(run, events(tasks)[7:10])
    _, _, (x, y, outputs) = events(tasks)[10]
    student = {name: value.clone() for name, value in run.model.state_dict().items()}
    run.model.load_state_dict(teacher)
    with torch.no_grad():
        answered = run.model(x)
    run.model.load_state_dict(student)
    past = tasks.tasks[0].outputs
    logits = run.model(x)
    p, q = (torch.softmax(each[:, past] / 3.0, 1) for each in (answered, logits))
    distance = 3.0**2 * (p * (p / q).log()).sum(1).mean()
    loss = cross_entropy(logits[:, outputs], y) + 0.5 * distance
    grads = torch.autograd.grad(loss, list(run.model.parameters()))
    before = weights(run)
    run.step(x, y, outputs)
    assert torch.allclose(weights(run), before - torch.cat([g.flatten() for g in grads]), atol=1e-6)


def test_it_holds_one_model_whatever_the_number_of_tasks():
    tasks = stream("task")
    run = make("lwf", tasks)
    play(run, events(tasks))
    assert run.memory_bytes == sum(value.nbytes for value in run.model.state_dict().values())
    assert len(run.past_outputs) == 3
