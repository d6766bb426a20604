"""GPM: what joins the basis, what a projected step leaves alone, its state."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional

from sfao.methods.gpm import GPMOptions, grow_basis, project_
from sfao.methods.input_space import condense, input_columns, input_layers, representations
from tests.methods.laboratory import CUTS, check_left_alone, check_resumed, events, method, play, stream, weights

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


# -- Inputs of layers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "layer",
    [
        lambda bias: nn.Linear(6, 3, bias=bias),
        lambda bias: nn.Conv2d(2, 4, 3, padding=1, bias=bias),
        lambda bias: nn.Conv2d(2, 4, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2), bias=bias),
        lambda bias: nn.Conv2d(4, 4, 3, groups=2, bias=bias),
    ],
    ids=["linear", "conv", "strided", "grouped"],
)
def test_a_layer_is_its_weight_matrix_times_its_columns(layer, bias):
    layer = layer(bias)
    channels = 6 if isinstance(layer, nn.Linear) else layer.in_channels
    x = torch.randn(5, channels) if isinstance(layer, nn.Linear) else torch.randn(5, channels, 7, 7)
    rows = layer.weight.flatten(1)
    rows = torch.cat([rows, layer.bias[:, None]], 1) if bias else rows
    columns = input_columns(layer, x)
    made, given = rows @ columns, layer(x)
    groups = getattr(layer, "groups", 1)
    # Columns go by example, group, position; an output of group g reads the columns of group g.
    made = made.unflatten(0, (groups, -1)).unflatten(2, (5, groups, -1))
    picked = torch.stack([made[g, :, :, g] for g in range(groups)])  # group, output, example, position
    assert torch.allclose(picked.flatten(0, 1).permute(1, 0, 2).reshape(given.shape), given, atol=1e-5)


def test_condensing_keeps_the_products():
    wide = torch.randn(5, 300, dtype=torch.float64)
    assert condense(wide).shape == (5, 5)
    assert torch.allclose(condense(wide) @ condense(wide).T, wide @ wide.T)
    assert torch.equal(condense(wide[:, :3]), wide[:, :3])


def test_representations_are_those_of_all_batches_in_eval_mode():
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2)).train()
    model[2].running_mean.fill_(0.3)
    batches = [torch.randn(9, 6) for _ in range(3)]
    found = representations(model, input_layers(model), batches)
    assert torch.equal(model[2].running_mean, torch.full((4,), 0.3))
    assert all(module.training for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())
    model.eval()
    for name, x in (("0", torch.cat(batches)), ("3", model[:3](torch.cat(batches)))):
        columns = torch.cat([x.T, torch.ones(1, 27)]).double()
        assert torch.allclose(found[name] @ found[name].T, columns @ columns.T, atol=1e-4)


def test_hooks_are_removed_after_a_failure():
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    with pytest.raises(RuntimeError):
        representations(model, input_layers(model), [torch.randn(3, 5)])
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_padding_that_cannot_be_unfolded_is_refused():
    with pytest.raises(ValueError, match="convolution '0' must be padded by given numbers of zeros, got padding"):
        input_layers(nn.Sequential(nn.Conv2d(1, 1, 3, padding="same")))


# -- Projection --------------------------------------------------------------------------------------------


def test_a_projected_step_does_not_change_the_outputs_for_inputs_in_the_basis():
    """A linear layer: exactly those outputs stay, and the others move."""
    layer = nn.Linear(8, 3).double()
    old, new = torch.randn(4, 8).double(), torch.randn(5, 8).double()
    basis = grow_basis(torch.empty(9, 0, dtype=torch.float64), input_columns(layer, old), 1.0)
    assert basis.shape == (9, 4)
    before = layer(old).detach(), layer(new).detach()
    functional.cross_entropy(layer(new), torch.tensor([0, 1, 2, 0, 1])).backward()
    with torch.no_grad():
        project_(layer, basis)
        layer.weight -= layer.weight.grad
        layer.bias -= layer.bias.grad
    assert torch.allclose(layer(old), before[0], atol=1e-12)
    assert (layer(new) - before[1]).abs().max() > 1e-2


def test_a_complete_basis_leaves_exactly_nothing():
    layer = nn.Linear(3, 2)
    layer(torch.randn(4, 3)).square().sum().backward()
    project_(layer, torch.linalg.qr(torch.randn(4, 4)).Q)
    assert not layer.weight.grad.any()
    assert not layer.bias.grad.any()


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("scenario", ["domain", "class"])
def test_the_second_task_leaves_the_network_as_it_was_on_the_first(model, scenario):
    """The output for inputs in the basis cannot change in any layer, momentum or not; the threshold keeps all of it."""
    tasks = stream(scenario, model)
    # So few examples that their inputs do not fill the space of any layer.
    run = method("gpm", tasks, {"threshold": 1.0}, model=model, momentum=0.9)
    old = next(tasks.tasks[0].train.batches(4))[0].double()
    run._inputs = lambda task, generator: iter([old])
    run.model.double()
    double = [
        (what, number, (arguments[0].double(), *arguments[1:]) if what == "step" else arguments)
        for what, number, arguments in events(tasks)
    ]
    play(run, double[:7])
    before = run.model(old).detach()
    moved = weights(run.model)
    play(run, double[7:13])
    assert not torch.equal(weights(run.model), moved)
    assert torch.allclose(run.model(old), before, atol=1e-10)


def test_where_every_task_has_its_own_outputs_the_last_layer_is_free():
    runs = {scenario: method("gpm", stream(scenario), {"examples": 4}) for scenario in ("task", "domain", "class")}
    for scenario, run in runs.items():
        play(run, events(stream(scenario)))
    assert runs["task"].decisions["classifier"] == {"accept": 15, "project": 0, "discard": 0, "zero": 0}
    assert runs["task"].decisions["hidden1"] == {"accept": 5, "project": 10, "discard": 0, "zero": 0}
    for scenario in ("domain", "class"):
        assert runs[scenario].decisions["classifier"]["project"] == 10


def test_other_parameters_are_frozen_after_the_first_task():
    tasks = stream()
    run = method("gpm", tasks)
    norm = nn.BatchNorm1d(10)
    run.model.relu1 = nn.Sequential(norm, nn.ReLU())
    run = type(run)(run.model, run.training, run.options)
    start = norm.weight.detach().clone()
    play(run, events(tasks)[:7])
    first = norm.weight.detach().clone()
    assert not torch.equal(first, start)
    play(run, events(tasks)[7:])
    assert torch.equal(norm.weight, first)


def test_the_first_task_is_plain_descent():
    tasks = stream()
    runs = [method(name, tasks) for name in ("gpm", "sgd")]
    for run in runs:
        play(run, events(tasks)[:6])
    assert torch.equal(*(weights(run.model) for run in runs))


def test_memory_bytes():
    tasks = stream()
    run = method("gpm", tasks, {"threshold": 1.0, "examples": 3})
    play(run, events(tasks)[:7])
    # Three examples span three dimensions: 13 inputs of the hidden layer, 11 of the classifier.
    assert run.memory_bytes == 3 * (13 + 11) * 4


def test_thresholds_by_layer_and_by_task():
    tasks = stream()
    run = method("gpm", tasks, {"threshold": (0.5, 1.0), "examples": 3})
    play(run, events(tasks)[:7])
    assert {name: basis.shape[1] for name, basis in run.bases.items()} == {"hidden1": 1, "classifier": 3}
    plain, rising = (method("gpm", tasks, {"threshold": 0.8, "threshold_increase": i}) for i in (0.0, 0.1))
    for run in (plain, rising):
        play(run, events(tasks)[:7])
    assert plain.memory_bytes == rising.memory_bytes  # the first task has no increase
    for run in (plain, rising):
        play(run, events(tasks)[7:])
    assert plain.memory_bytes < rising.memory_bytes


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize(("scenario", "model"), [("domain", "mlp"), ("task", "cnn"), ("class", "mlp")])
def test_a_resumed_run_ends_the_same(cut, scenario, model):
    check_resumed("gpm", {"threshold": 0.9, "threshold_increase": 0.02, "examples": 20}, scenario, model, cut)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_ending_a_task_leaves_the_model_alone(model):
    tasks = stream(model=model)
    check_left_alone(method("gpm", tasks, model=model), tasks)


def test_concerns():
    tasks = stream()
    run = method("gpm", tasks, {"threshold": 0.8})
    play(run, events(tasks)[:7])
    assert run.concerns() == ["gpm: no step was ever projected; every update equalled SGD's"]
    play(run, events(tasks)[7:])
    assert run.concerns() == []
    run = method("gpm", tasks, {"threshold": (1.0, 0.5)})
    play(run, events(tasks))
    assert run.concerns() == ["gpm: the basis of layer 'hidden1' spans all of its 13 inputs; nothing is left to learn"]


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": 0}, {"threshold": 1.1}, {"threshold": (0.9, 2)}, {"examples": 0}, {"threshold_increase": -1}],
)
def test_bad_options(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        GPMOptions(**wrong)


def test_as_many_thresholds_as_layers():
    with pytest.raises(ValueError, match="`threshold` must be one number or one for each of the layers hidden1, cl"):
        method("gpm", stream(), {"threshold": (0.9, 0.9, 0.9)})
