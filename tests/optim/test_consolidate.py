"""What consolidate stores, and what it leaves alone."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sfao import SFAO, layer_groups
from sfao.optim._consolidation.batches import sample_examples
from tests.optim.problem import loss, network, task, weights

# Small layers, whose directions span them, are what makes these tests quick.
pytestmark = pytest.mark.filterwarnings("ignore:the directions of these layers span:RuntimeWarning")


def directions(optimizer: SFAO, layer: str) -> torch.Tensor:
    """The unit directions held for a layer."""
    blocks = optimizer.state_dict()["gate"]["layers"][layer]["memory"]["blocks"]
    rows = torch.cat([tensor for block in blocks for tensor in block["tensors"]], dim=1)
    return rows / rows.norm(dim=1, keepdim=True)


def gradient_of(model: nn.Module, value: torch.Tensor) -> torch.Tensor:
    """The unit gradient of the first layer."""
    found = torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model[0].parameters()))])
    return found / found.norm()


def test_by_default_the_loss_gradient_of_every_batch():
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions")
    assert optimizer.consolidate(model, task(0), loss) == 12  # six batches, two layers
    expected = torch.stack([gradient_of(model, loss(model(x), y)) for x, y in task(0)])
    assert torch.allclose(directions(optimizer, "0"), expected, atol=1e-6)


def test_the_true_logit_of_single_examples():
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions")
    x, y = task(0)[0]
    assert optimizer.consolidate(model, [(x, y)], target="logit") == 32
    expected = torch.stack([gradient_of(model, model(x[i : i + 1])[0, y[i]]) for i in range(16)])
    assert torch.allclose(directions(optimizer, "0"), expected, atol=1e-6)


def test_the_loss_of_single_examples_and_the_logits_of_batches():
    model = network()
    x, y = task(0)[0]
    optimizer = SFAO(layer_groups(model), memory="directions")
    optimizer.consolidate(model, [(x, y)], loss, per="example")
    expected = torch.stack([gradient_of(model, loss(model(x[i : i + 1]), y[i : i + 1])) for i in range(16)])
    assert torch.allclose(directions(optimizer, "0"), expected, atol=1e-6)
    optimizer = SFAO(layer_groups(model), memory="directions")
    optimizer.consolidate(model, [(x, y)], target="logit", per="batch")
    expected = gradient_of(model, model(x).gather(1, y[:, None]).mean())
    assert torch.allclose(directions(optimizer, "0")[0], expected, atol=1e-6)


def test_examples_are_limited_to_what_the_memory_can_hold():
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions", capacity=5)
    assert optimizer.consolidate(model, task(0), target="logit") == 10
    assert len(directions(optimizer, "0")) == 5


def test_limit_draws_uniformly():
    counts, model, data = torch.zeros(6), network(), task(0)
    batches = torch.stack([gradient_of(model, loss(model(x), y)) for x, y in data])
    for seed in range(300):
        optimizer = SFAO(layer_groups(model), memory="directions", seed=seed)
        optimizer.consolidate(model, data, loss, limit=2)
        counts += (directions(optimizer, "0") @ batches.T > 0.9999).sum(0)
    # 2 of 6: 100 expected each, standard deviation 8
    assert counts.sum() == 600
    assert (counts - 100).abs().max() < 40


def test_every_call_ends_a_task_and_the_memory_is_shared_equally():
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions", capacity=6)
    for number in range(3):
        optimizer.consolidate(model, task(number), loss)
    tasks = optimizer.state_dict()["gate"]["layers"]["0"]["memory"]["tasks"]
    assert sorted(tasks) == [0, 0, 1, 1, 2, 2]


def test_model_gradients_statistics_and_modes_stay_as_they_are():
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    model.train()
    model[1].eval()  # a user may have frozen one layer's statistics
    loss(model(task(0)[0][0]), task(0)[0][1]).backward()
    state, gradients = copy.deepcopy(model.state_dict()), [p.grad.clone() for p in model.parameters()]
    optimizer = SFAO(layer_groups(model), memory="directions")
    optimizer.consolidate(model, task(0), loss)
    optimizer.consolidate(model, task(0), target="logit")
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert [module.training for module in model] == [True, False, True, True]


def test_batch_norm_is_used_as_in_evaluation():
    """In training mode the statistics of the batch would give other gradients."""
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).train()
    for x, _ in task(0):
        model(x)
    optimizer = SFAO(layer_groups(model), memory="directions")
    optimizer.consolidate(model, task(0), loss)
    model.eval()
    expected = torch.stack([gradient_of(model, loss(model(x), y)) for x, y in task(0)])
    assert torch.allclose(directions(optimizer, "0"), expected, atol=1e-6)


def test_a_data_loader_and_no_grad():
    model = network()
    x, y = task(0)[0]
    optimizer = SFAO(layer_groups(model), memory="directions")
    with torch.no_grad():
        assert optimizer.consolidate(model, DataLoader(TensorDataset(x, y), batch_size=4), loss) == 8
    optimizer.consolidate(model, ([x, y] for x, y in task(0)), loss)


def test_remember_stores_what_backward_left():
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions")
    x, y = task(0)[0]
    loss(model(x), y).backward()
    assert optimizer.remember() == 2
    assert torch.allclose(directions(optimizer, "0")[0], gradient_of(model, loss(model(x), y)), atol=1e-6)


def test_short_gradients_are_not_stored():
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions", min_norm=1e6)
    assert optimizer.consolidate(model, task(0), loss) == 0
    assert optimizer.memory_bytes == 0


def test_examples_that_are_kept_do_not_keep_their_batches():
    kept = sample_examples([(torch.randn(1000, 50), torch.zeros(1000))], 3, torch.Generator())
    assert all(inputs.untyped_storage().nbytes() == 200 for inputs, _ in kept)


def test_a_model_without_the_gated_parameters_is_refused():
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions")
    with pytest.raises(ValueError, match="`model` must use the gated parameters"):
        optimizer.consolidate(nn.Sequential(copy.deepcopy(model), nn.Linear(3, 3)), task(0), loss)
    assert optimizer.gate.task == 0
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="at least one gated parameter must require gradients"):
        optimizer.consolidate(model, task(0), loss)


def failing_loader():
    yield from task(0)[:3]
    raise OSError("the disk is gone")


def with_nan():
    x, y = task(0)[0]
    yield x, y
    yield x * float("nan"), y


@pytest.mark.parametrize(
    ("batches", "error", "message"),
    [
        ([], ValueError, "`batches` must yield at least one batch, got none"),
        (failing_loader, OSError, "the disk is gone"),
        (with_nan, ValueError, "the gradient of layer '0' must be finite, got nan"),
        ([torch.zeros(3)], ValueError, "`batches` must yield \\(inputs, targets\\) pairs of tensors, got Tensor"),
        ([{"x": 1}], ValueError, "got dict"),
        ([(torch.zeros(2), torch.zeros(2), 3)], ValueError, "got tuple of Tensor, Tensor, int"),
        ([(torch.zeros(4, 12), torch.zeros(3))], ValueError, "must yield as many targets as inputs"),
    ],
)
@pytest.mark.parametrize("per", ["batch", "example"])
def test_a_failure_changes_nothing(batches, error, message, per):
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions", capacity=4)
    optimizer.consolidate(model, task(1), loss)
    held, random, size = directions(optimizer, "0"), weights(model), optimizer.memory_bytes
    with pytest.raises(error, match=message):
        optimizer.consolidate(model, batches() if callable(batches) else batches, loss, per=per)
    assert torch.equal(directions(optimizer, "0"), held)
    assert torch.equal(weights(model), random)
    assert optimizer.memory_bytes == size
    assert optimizer.gate.task == 1
    assert model.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "logits"}, "`target` must be one of loss, logit, got 'logits' \\(did you mean 'logit'\\?\\)"),
        ({"per": "epoch"}, "`per` must be one of batch, example, got 'epoch'"),
        ({"limit": 0}, "`limit` must be a whole number of at least 1, got 0"),
        ({"loss": None}, '`loss` must be given for target="loss", got None'),
    ],
)
def test_bad_arguments(arguments, message):
    model = network()
    with pytest.raises(ValueError, match=message):
        SFAO(layer_groups(model), memory="directions").consolidate(model, task(0), **{"loss": loss, **arguments})


@pytest.mark.parametrize("targets", [torch.randn(16, 3), torch.zeros(16, 1).long(), torch.full((16,), 3)])
def test_the_logit_target_needs_classes(targets):
    model = network()
    x, _ = task(0)[0]
    with pytest.raises(ValueError, match="class indices"):
        SFAO(layer_groups(model), memory="directions").consolidate(model, [(x, targets)], target="logit")


def test_the_loss_must_be_one_number():
    model = network()
    with pytest.raises(ValueError, match=r"`loss` must return one number, got a tensor of shape \(16,\)"):
        SFAO(layer_groups(model), memory="directions").consolidate(
            model, task(0), nn.CrossEntropyLoss(reduction="none")
        )
