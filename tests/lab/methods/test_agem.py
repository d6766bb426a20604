"""A-GEM: its formula, its reference gradient, its state."""

import pytest
import torch

from sfao.lab.methods.agem import correct
from tests.lab.methods.short_runs import events, gradient, make, play, stream


def test_a_gradient_that_agrees_is_left_as_it_is():
    for reference in ([1.0, 0.0], [0.0, 1.0], [0.0, 0.0]):
        given = torch.tensor([3.0, 0.0])
        assert correct(given, torch.tensor(reference)) is given


def test_a_corrected_gradient_is_orthogonal_to_the_reference_and_no_longer():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        given, reference = torch.randn(2, 30, generator=generator)
        update = correct(given, reference)
        assert update @ reference >= -1e-5
        assert update.norm() <= given.norm() + 1e-6
        if given @ reference < 0:
            assert abs(update @ reference) < 1e-5


@pytest.mark.parametrize("scenario", ["domain", "task", "class"])
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_no_step_goes_against_the_mean_of_all_stored_examples(scenario, model):
    """With a reference batch that is the whole memory, the reference gradient can be computed here."""
    tasks = stream(scenario, model)
    run = make("agem", tasks, {"examples": 10, "batch": 1000}, model=model)
    checked = 0
    for event in events(tasks):
        if event[0] == "step" and event[1] > 0:
            stored = run.memory.draw(1000, torch.Generator(), torch.device("cpu"))
            grads = torch.autograd.grad(stored.loss(run.model), list(run.model.parameters()))
            reference = torch.cat([g.flatten() for g in grads])
            play(run, [event])
            assert gradient(run.model) @ reference >= -1e-5 * reference.norm() * gradient(run.model).norm()
            checked += 1
        else:
            play(run, [event])
    assert checked == 10
    assert run.decisions["model"]["accept"] + run.decisions["model"]["project"] == 15
    assert scenario == "task" or run.decisions["model"]["project"] > 0
