"""GEM: its quadratic programme against a general solver, its constraints in training, its state."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from sfao.lab.methods.gem import correct
from tests.lab.methods.short_runs import events, gradient, make, play, stream


def problem(seed: int, tasks: int, size: int = 12):
    """A gradient that points against at least one of the task gradients."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        given = torch.randn(size, generator=generator, dtype=torch.float64)
        references = torch.randn(tasks, size, generator=generator, dtype=torch.float64)
        if (references @ given).min() < 0:
            return given, references


def test_a_margin_by_hand():
    # Orthogonal constraints: v1 = max(1, .5), v2 = max(-2, .5) by v_i = max(-c_i / |r_i|^2, margin).
    update = correct(torch.tensor([-1.0, 2.0, 3.0]), torch.eye(3)[:2], margin=0.5)
    assert torch.allclose(update, torch.tensor([0.0, 2.5, 3.0]))
    update = correct(torch.tensor([-1.0, 2.0, 3.0]), torch.eye(3)[:2], margin=2.0)
    assert torch.allclose(update, torch.tensor([1.0, 4.0, 3.0]))


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_a_gradient_that_violates_nothing_is_left_as_it_is(margin):
    given = torch.tensor([1.0, 2.0, 0.0])
    assert correct(given, torch.tensor([[1.0, 0.0, 5.0], [0.0, 0.0, 1.0]]), margin) is given


@pytest.mark.parametrize("tasks", [1, 2, 5, 10])
@pytest.mark.parametrize("seed", range(3))
def test_the_nearest_vector_that_violates_nothing(seed, tasks):
    given, references = problem(seed, tasks)
    update = correct(given, references, margin=0.0)
    assert (references @ update).min() > -1e-9
    rows, start = references.numpy(), given.numpy()
    other = minimize(
        lambda u: 0.5 * np.sum((u - start) ** 2),
        np.zeros_like(start),
        jac=lambda u: u - start,
        constraints={"type": "ineq", "fun": lambda u: rows @ u, "jac": lambda u: rows},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert other.success
    np.testing.assert_allclose(update.numpy(), other.x, atol=1e-5)


@pytest.mark.parametrize("margin", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_dual_with_a_margin(seed, margin):
    given, references = problem(seed, 4)
    update = correct(given, references, margin)
    rows, start = references.numpy(), given.numpy()
    other = minimize(
        lambda v: 0.5 * np.sum((start + v @ rows) ** 2),
        np.full(4, margin + 1),
        jac=lambda v: rows @ (start + v @ rows),
        bounds=[(margin, None)] * 4,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    np.testing.assert_allclose(update.numpy(), start + other.x @ rows, atol=1e-5)


def test_dependent_zero_short_and_opposed_task_gradients():
    given, references = problem(0, 3)
    plain = correct(given, references, margin=0.0)
    twice = torch.cat([references, 1e-6 * references, torch.zeros(2, 12, dtype=torch.float64)])
    assert torch.allclose(correct(given, twice, margin=0.0), plain, atol=1e-5)
    row = references[:1]
    opposed = correct(given, torch.cat([row, -row]), margin=0.0)  # only u.r = 0 is left
    assert torch.allclose(opposed, given - (row @ given) / (row @ row.T).item() * row[0], atol=1e-6)
    short = torch.cat([references[:2], 1e-7 * references[2:]]).float()
    assert torch.allclose(correct(given.float(), short, margin=0.0), plain.float(), atol=1e-4)


@pytest.mark.parametrize("scenario", ["domain", "task", "class"])
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_no_step_goes_against_a_past_task(scenario, model):
    tasks = stream(scenario, model)
    run = make("gem", tasks, {"examples": 10, "margin": 0}, model=model)
    for event in events(tasks):
        references = []
        if event[0] == "step":
            for number in range(event[1]):
                stored = run.memory.of_task(number, torch.device("cpu"))
                grads = torch.autograd.grad(stored.loss(run.model), list(run.model.parameters()))
                references.append(torch.cat([g.flatten() for g in grads]))
        play(run, [event])
        for reference in references:
            assert gradient(run.model) @ reference >= -1e-5 * reference.norm() * gradient(run.model).norm()
    assert sum(run.decisions["model"].values()) == 15
    assert scenario == "task" or run.decisions["model"]["project"] > 0


@pytest.mark.parametrize("name", ["gem", "agem"])
def test_examples_that_never_mattered_are_a_concern(name):
    tasks = stream()
    run = make(name, tasks)
    play(run, events(tasks)[:7])
    assert run.concerns() == [f"{name}: no step ever went against the stored examples"]
    play(run, events(tasks)[7:])
    assert run.concerns() == []
