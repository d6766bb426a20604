"""SGP: importances, and what is removed from a gradient."""

import pytest
import torch

from sfao.lab.methods.sgp import grow_space, measure_importances, scale_down
from tests.lab.methods.short_runs import learn, make, stream, weights


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


EMPTY = draw(8, 0), draw(0)


def test_importances_by_hand():
    """(1 + 1) * 1 / (1 * 1 + 3) = 1/2, and 1 for the longest."""
    assert torch.allclose(measure_importances(torch.tensor([3.0, 1.0, 0.0]), 1.0), torch.tensor([1.0, 0.5, 0.0]))


def test_importances_add_up_over_tasks_to_one_at_most():
    basis, importances = grow_space(*EMPTY, draw(8, 5), 0.99, 1.0)
    grown, later = grow_space(basis, importances, draw(8, 5, seed=1), 0.5, 1.0)
    assert (later[: len(importances)] >= importances).all()
    assert (later <= 1).all()
    assert torch.allclose(grown.T @ grown, torch.eye(grown.shape[1], dtype=torch.float64))


def test_an_importance_is_the_share_that_is_removed():
    basis, importances = grow_space(*EMPTY, draw(8, 5), 0.9, 2.0)
    rows = draw(3, 8, seed=2)
    left = scale_down(rows, basis, importances)
    assert torch.allclose(left @ basis, (rows @ basis) * (1 - importances))
    outside = rows - rows @ basis @ basis.T
    assert torch.allclose(left - left @ basis @ basis.T, outside)


@pytest.mark.parametrize(("scenario", "model"), [("domain", "mlp"), ("task", "cnn")])
def test_with_a_huge_scale_it_is_gpm(scenario, model):
    """Every importance is 1 then: all is removed along every axis."""
    tasks = stream(scenario, model)
    options = {"threshold": 0.9, "examples": 20}
    gpm = learn(make("gpm", tasks, options, model), tasks)
    sgp = learn(make("sgp", tasks, {**options, "scale": 1e9}, model), tasks)
    assert torch.allclose(weights(gpm), weights(sgp), atol=1e-4)
    assert not torch.allclose(weights(learn(make("sgd", tasks, model=model), tasks)), weights(sgp), atol=1e-3)
