"""Orthogonal gradient descent: steps are orthogonal to what is stored, and the right things are stored."""

import copy
from itertools import islice

import pytest
import torch
from torch.nn.functional import cross_entropy

from sfao.lab.streams.seeding import make_generator
from tests.lab.methods.short_runs import events, gradient, make, play, stream, weights


def stored_directions(run) -> torch.Tensor:
    """The unit directions held (dense), as rows over all parameters of the model."""
    (layer,) = run.gate.layers
    return torch.cat([tensor for part in layer.memory.parts for tensor in part.held], dim=1)


@pytest.mark.parametrize(("directions", "target", "a_task"), [(7, "logit", 7), (None, "loss", 5), (None, "logit", 40)])
def test_without_a_capacity_the_memory_grows_by_the_directions_of_every_task(directions, target, a_task):
    tasks = stream()
    run = make("ogd", tasks, {"directions": directions, "target": target})
    play(run, events(tasks))
    assert run.directions == len(stored_directions(run)) == 3 * a_task
    assert run.memory_bytes == 3 * a_task * 152 * 4


def test_with_a_capacity_the_tasks_share_it():
    tasks = stream()
    run = make("ogd", tasks, {"directions": 7, "capacity": 6})
    play(run, events(tasks))
    (layer,) = run.gate.layers
    assert sorted(layer.memory.slots.tasks) == [0, 0, 1, 1, 2, 2]


def test_concerns():
    tasks = stream()
    run = make("ogd", tasks, {"directions": 5})
    play(run, events(tasks)[:7])
    assert run.concerns() == ["ogd: no step was ever projected"]
    play(run, events(tasks)[7:])
    assert run.concerns() == []
    run = make("ogd", tasks, {"directions": 40, "granularity": "layer"})
    play(run, events(tasks))  # 120 directions for the 22 parameters of the classifier
    assert run.concerns() == ["ogd: the directions of layer 'classifier' span all of it; nothing is left to learn"]


# -- As the paper writes it, and as SFAO ---------------------------------------------------------------------


def step_slowly(model, basis, x, y, outputs, lr) -> None:
    """One step of OGD on a model: g less its part along every vector of an orthonormal basis."""
    model.zero_grad()
    cross_entropy(model(x)[:, outputs], y).backward()
    moved = gradient(model).double()
    for vector in basis:
        moved -= (moved @ vector) * vector
    with torch.no_grad():
        parts = moved.float().split([parameter.numel() for parameter in model.parameters()])
        for parameter, part in zip(model.parameters(), parts, strict=True):
            parameter -= lr * part.view_as(parameter)


def add_to_basis(model, basis, batches, outputs) -> None:
    """Gram and Schmidt, twice, on the gradients of the true logits."""
    for x, y in batches:
        value = model(x)[:, outputs].gather(1, y[:, None]).mean()
        vector = torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))]).double()
        vector /= vector.norm()
        for _ in range(2):
            for other in basis:
                vector -= (vector @ other) * other
        basis.append(vector / vector.norm())


@pytest.mark.parametrize("scenario", ["domain", "task"])
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_every_step_is_that_of_the_paper(model, scenario):
    tasks = stream(scenario, model)
    run = make("ogd", tasks, {"directions": 5}, model=model)
    twin, basis = copy.deepcopy(run.model), []
    for event in events(tasks):
        play(run, [event])
        what, number, arguments = event
        if what == "step":
            step_slowly(twin, basis, *arguments, run.training.lr)
            assert (weights(run) - weights(twin)).norm() <= 1e-5 * weights(twin).norm()
        elif what == "end":
            task = arguments[1]
            add_to_basis(twin, basis, islice(task.train.batches(1, make_generator(number, "end")), 5), task.outputs)
