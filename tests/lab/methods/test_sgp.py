"""SGP: importances, what is taken from a gradient, its state."""

import pytest
import torch

from sfao.lab.methods.sgp import Space, grow_space, take, weigh
from tests.lab.methods.laboratory import CUTS, check_resumed, events, method, play, stream, weights


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def nothing(width: int) -> Space:
    return Space(torch.empty(width, 0, dtype=torch.float64), torch.empty(0, dtype=torch.float64))


def test_importances_by_hand():
    """(1 + 1) * 1 / (1 * 1 + 3) = 1/2, and 1 for the longest."""
    assert torch.allclose(weigh(torch.tensor([3.0, 1.0, 0.0]), 1.0), torch.tensor([1.0, 0.5, 0.0]))


def test_importances_add_up_over_tasks_to_one_at_most():
    space = grow_space(nothing(8), draw(8, 5), 0.99, 1.0)
    again = grow_space(space, draw(8, 5, seed=1), 0.5, 1.0)
    assert (again.importances[: len(space.importances)] >= space.importances).all()
    assert (again.importances <= 1).all()
    assert torch.allclose(again.basis.T @ again.basis, torch.eye(again.basis.shape[1], dtype=torch.float64))


def test_an_importance_is_the_share_that_is_taken():
    space = grow_space(nothing(8), draw(8, 5), 0.9, 2.0)
    rows = draw(3, 8, seed=2)
    left = take(rows, space)
    assert torch.allclose(left @ space.basis, (rows @ space.basis) * (1 - space.importances))
    outside = rows - rows @ space.basis @ space.basis.T
    assert torch.allclose(left - left @ space.basis @ space.basis.T, outside)


@pytest.mark.parametrize(("scenario", "model"), [("domain", "mlp"), ("task", "cnn")])
def test_with_a_huge_scale_it_is_gpm(scenario, model):
    """Every importance is 1 then: all is taken along every axis."""
    tasks = stream(scenario, model)
    options = {"threshold": 0.9, "examples": 20}
    both = [method("gpm", tasks, options, model=model), method("sgp", tasks, {**options, "scale": 1e9}, model=model)]
    for run in both:
        play(run, events(tasks))
    assert torch.allclose(*(weights(run.model) for run in both), atol=1e-4)
    plain = method("sgd", tasks, model=model)
    play(plain, events(tasks))
    assert not torch.allclose(weights(plain.model), weights(both[1].model), atol=1e-3)


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize(("scenario", "model"), [("domain", "mlp"), ("task", "cnn")])
def test_a_run_resumes_bit_for_bit(scenario, model, cut):
    check_resumed("sgp", {"examples": 20}, scenario, model, cut)
