"""GPM: what joins the basis, what a projected step leaves alone, its state."""

import pytest
import torch

from sfao.lab.methods.gpm import grow_basis
from sfao.lab.streams.seeding import make_generator
from tests.lab.methods.short_runs import events, make, play, stream, weights

NONE = torch.empty(4, 0, dtype=torch.float64)
# Energies 9, 4, 2, 1 of 16: shares .5625, .25, .125, .0625 along the axes.
INPUTS = torch.diag(torch.tensor([3.0, 2.0, 2**0.5, 1.0], dtype=torch.float64))


# -- The basis ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "expected"), [(0.1, 1), (0.56, 1), (0.57, 2), (0.81, 2), (0.82, 3), (0.93, 3), (0.94, 4), (1.0, 4)]
)
def test_the_fewest_directions_with_that_share_of_the_energy(threshold, expected):
    basis = grow_basis(NONE, INPUTS, threshold)
    assert basis.shape == (4, expected)
    assert torch.allclose(basis.abs(), torch.eye(4, dtype=torch.float64)[:, :expected], atol=1e-12)


def test_what_the_basis_covers_counts_towards_the_share():
    second = torch.eye(4, dtype=torch.float64)[:, 1:2]
    assert torch.equal(grow_basis(second, INPUTS, 0.2), second)  # .25 is covered: nothing joins
    grown = grow_basis(second, INPUTS, 0.8)  # .25 + .5625
    assert torch.allclose(grown.abs(), torch.eye(4, dtype=torch.float64)[:, [1, 0]], atol=1e-12)
    assert grow_basis(second, INPUTS, 0.82).shape == (4, 3)


def test_the_basis_stays_orthonormal_and_never_outgrows_the_space():
    generator = torch.Generator().manual_seed(0)
    basis = torch.empty(20, 0, dtype=torch.float64)
    for task in range(10):
        inputs = torch.randn(20, 4, generator=generator, dtype=torch.float64)
        inputs[:, 1] = inputs[:, 0] + 1e-9 * inputs[:, 1]  # nearly dependent
        basis = grow_basis(basis, inputs, 0.999)
        products = basis.T @ basis
        assert torch.allclose(products, torch.eye(len(products), dtype=torch.float64), atol=1e-10)
        assert basis.shape[1] <= min(20, 3 * (task + 1))
    assert basis.shape == (20, 20)


def test_rounding_is_no_direction():
    inputs = torch.randn(4, 1, dtype=torch.float64) @ torch.randn(1, 9, dtype=torch.float64)
    assert grow_basis(NONE, inputs.float().double(), 1.0).shape == (4, 1)
    assert grow_basis(NONE, torch.zeros(4, 3, dtype=torch.float64), 1.0).shape == (4, 0)


# -- Projection --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("scenario", ["domain", "class"])
def test_the_second_task_leaves_the_network_as_it_was_on_the_first(model, scenario):
    """The output for inputs in the basis cannot change in any layer, momentum or not; the threshold keeps all of it."""
    tasks = stream(scenario, model)
    # So few examples that their inputs do not fill the space of any layer.
    run = make("gpm", tasks, {"threshold": 1.0, "examples": 4}, model=model, momentum=0.9)
    play(run, events(tasks)[:7])
    old = next(tasks.tasks[0].train.batches(8, make_generator(0, "end")))[0][:4]  # those whose inputs were collected
    before, moved = run.model(old).detach(), weights(run)
    play(run, events(tasks)[7:13])
    assert (weights(run) - moved).norm() > 1e-2
    assert torch.allclose(run.model(old), before, atol=2e-6)


def test_thresholds_by_layer_and_by_task():
    tasks = stream()
    run = make("gpm", tasks, {"threshold": (0.5, 1.0), "examples": 3})
    play(run, events(tasks)[:7])
    assert {name: basis.shape[1] for name, basis in run.bases.items()} == {"hidden1": 1, "classifier": 3}
    plain, rising = (make("gpm", tasks, {"threshold": 0.8, "threshold_increase": i}) for i in (0.0, 0.1))
    for run in (plain, rising):
        play(run, events(tasks)[:7])
    assert plain.memory_bytes == rising.memory_bytes  # the first task has no increase
    for run in (plain, rising):
        play(run, events(tasks)[7:])
    assert plain.memory_bytes < rising.memory_bytes


def test_concerns():
    tasks = stream()
    run = make("gpm", tasks, {"threshold": 0.8})
    play(run, events(tasks))
    assert run.concerns() == []
    run = make("gpm", tasks, {"threshold": (1.0, 0.5)})
    play(run, events(tasks))
    assert run.concerns() == ["gpm: the basis of layer 'hidden1' spans all of its 13 inputs"]


def test_as_many_thresholds_as_layers():
    with pytest.raises(ValueError, match="`threshold` must be one number or one for each of the layers hidden1, cl"):
        make("gpm", stream(), {"threshold": (0.9, 0.9, 0.9)})
