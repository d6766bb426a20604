"""What consolidate stores, how, and what it leaves alone."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sfao
from sfao.drift_bound import DriftBound
from sfao.gate import Gate
from sfao.layers import layer_groups
from sfao.optimizer import SFAO
from tests.problem import directions, loss, make_trained, network, task, train, weights

# Small layers, whose directions span them, are quick.
pytestmark = pytest.mark.filterwarnings("ignore:the directions of these layers span:RuntimeWarning")


def gradient_of(model, value):
    """The unit gradient of the first layer."""
    found = torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model[0].parameters()))])
    return found / found.norm()


# -- What is stored ----------------------------------------------------------------------------------------


def test_by_default_the_loss_gradient_of_every_batch():
    model = network()
    optimizer = SFAO(model)
    assert optimizer.consolidate(task(0), loss) == 12  # six batches, two layers
    expected = torch.stack([gradient_of(model, loss(model(x), y)) for x, y in task(0)])
    assert torch.allclose(directions(optimizer, "0"), expected, atol=1e-6)


def test_logits_and_losses_of_examples_and_batches():
    model = network()
    x, y = task(0)[0]
    expected = {
        ("logit", None): [gradient_of(model, model(x[i : i + 1])[0, y[i]]) for i in range(16)],
        ("loss", "example"): [gradient_of(model, loss(model(x[i : i + 1]), y[i : i + 1])) for i in range(16)],
        ("logit", "batch"): [gradient_of(model, model(x).gather(1, y[:, None]).mean())],
    }
    for (target, per), wanted in expected.items():
        optimizer = SFAO(model)
        assert optimizer.consolidate([(x, y)], loss, target=target, per=per) == 2 * len(wanted)
        assert torch.allclose(directions(optimizer, "0"), torch.stack(wanted), atol=1e-6)


def test_mappings_objectives_and_models_that_return_a_loss():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x, y=None):
            outputs = self.net(x)
            return outputs if y is None else {"loss": loss(outputs, y)}

    model = Model()
    wanted = SFAO(model)
    wanted.consolidate(task(0), loss)
    mappings = [{"x": x, "y": y} for x, y in task(0)]
    for batches, how in (
        (mappings, {}),
        (mappings, {"objective": lambda model, batch: loss(model(batch["x"]), batch["y"])}),
        (mappings, {"objective": lambda m, b: nn.functional.cross_entropy(m(b["x"]), b["y"], reduction="none")}),
        (DataLoader(TensorDataset(*map(torch.cat, zip(*task(0), strict=True))), batch_size=16), {"loss": loss}),
        ((list(pair) for pair in task(0)), {"loss": loss}),
    ):
        optimizer = SFAO(model)
        with torch.no_grad():
            assert optimizer.consolidate(batches, **how) == 12
        assert torch.allclose(directions(optimizer, "net.0"), directions(wanted, "net.0"), atol=1e-6)


def test_logits_of_sequences_leave_out_ignored_targets():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 11))
    ids, targets = torch.randint(0, 11, (2, 5)), torch.randint(0, 11, (2, 5))
    targets[:, -2:] = -100
    optimizer = SFAO(model)
    optimizer.consolidate([(ids, targets)], target="logit", per="batch")
    outputs = model(ids)[:, :3]
    value = outputs.gather(2, targets[:, :3, None]).mean()
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model[1].parameters()))])
    assert torch.allclose(directions(optimizer, "1")[0], expected / expected.norm(), atol=1e-6)
    with pytest.raises(ValueError, match="needs class indices below the 11 outputs, got -1 to"):
        optimizer.consolidate([(ids, targets.clamp_min(-1))], target="logit")


def test_numbers_of_directions():
    optimizer = SFAO(network(), capacity=5)
    assert optimizer.consolidate(task(0), target="logit") == 10
    optimizer = SFAO(network(), capacity=6)
    for number in range(3):
        optimizer.consolidate(task(number), loss)
    assert sorted(optimizer.gate.layers[0].memory.slots.tasks) == [0, 0, 1, 1, 2, 2]
    short = SFAO(network(), min_norm=1e6)
    assert short.consolidate(task(0), loss) == 0
    assert short.memory_bytes == 0


@pytest.mark.parametrize("kind", [list, iter])
def test_limit_draws_uniformly(kind):
    counts, model, data = torch.zeros(6), network(), task(0)
    batches = torch.stack([gradient_of(model, loss(model(x), y)) for x, y in data])
    for seed in range(200):
        optimizer = SFAO(model, seed=seed)
        optimizer.consolidate(kind(data), loss, limit=2)
        counts += (directions(optimizer, "0") @ batches.T > 0.9999).sum(0)
    assert counts.sum() == 400
    assert (counts - 67).abs().max() < 30  # standard deviation 7


def test_remember_stores_what_backward_left():
    model = network()
    optimizer = SFAO(model)
    x, y = task(0)[0]
    loss(model(x), y).backward()
    assert optimizer.remember() == 2
    assert torch.allclose(directions(optimizer, "0")[0], gradient_of(model, loss(model(x), y)), atol=1e-6)
    optimizer = SFAO(model, admit_below=0.9)
    assert [optimizer.remember(), optimizer.remember()] == [2, 0]


def make_bound(model):
    return DriftBound(model).attach(torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("kind", [SFAO, make_bound])
def test_six_hundred_examples_take_few_python_calls(kind):
    memory, calls, source = kind(network()), 0, str(Path(sfao.__file__).parent)

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(source)

    batches = task(0, batches=38)
    sys.setprofile(count)
    try:
        memory.consolidate(batches, loss)
    finally:
        sys.setprofile(None)
    assert calls < 5_000


def test_only_gradients_that_will_be_stored_are_computed():
    class Watched(list):
        read = ()

        def __getitem__(self, number):
            self.read = (*self.read, number)
            return super().__getitem__(number)

    batches = Watched(task(0, batches=40))
    optimizer = SFAO(network(), capacity=5, eviction="fifo")
    optimizer.consolidate(batches, loss)
    assert batches.read == (35, 36, 37, 38, 39)


# -- What stays as it is -----------------------------------------------------------------------------------


def test_model_gradients_statistics_and_modes_stay_as_they_are():
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    model.train()
    model[1].eval()  # a user may have frozen one layer's statistics
    loss(model(task(0)[0][0]), task(0)[0][1]).backward()
    state, gradients = copy.deepcopy(model.state_dict()), [p.grad.clone() for p in model.parameters()]
    optimizer = SFAO(model)
    optimizer.consolidate(task(0), loss)
    optimizer.consolidate(task(0), target="logit")
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert [module.training for module in model] == [True, False, True, True]


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
        (with_nan, ValueError, "the loss of a past task must be finite, got nan"),
        ([torch.zeros(3)], ValueError, "`batches` must"),
        ([(torch.zeros(2), torch.zeros(2), 3)], ValueError, "`batches` must"),
        ([(torch.zeros(4, 12), torch.zeros(3))], ValueError, "`batches` must"),
    ],
)
@pytest.mark.parametrize("per", ["batch", "example"])
@pytest.mark.parametrize("options", [{}, {"admit_below": 0.9}, {"storage": "factored"}], ids=str)
def test_a_failure_changes_nothing(batches, error, message, per, options):
    model, optimizer = make_trained(1, capacity=100, momentum=0.9, **options)
    train(model, optimizer, task(1))
    before, held, size = optimizer.state_dict()["sfao"]["checksum"], weights(model), optimizer.memory_bytes
    with pytest.raises(error, match=message):
        optimizer.consolidate(batches() if callable(batches) else batches, loss, per=per)
    assert optimizer.state_dict()["sfao"]["checksum"] == before
    assert torch.equal(weights(model), held)
    assert optimizer.memory_bytes == size
    assert all("momentum_buffer" in state for state in optimizer.state.values())
    assert model.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "logits"}, "`target` must be one of loss, logit, got 'logits' \\(did you mean 'logit'\\?\\)"),
        ({"per": "epoch"}, "`per` must be one of batch, example, got 'epoch'"),
        ({"limit": 0}, "`limit` must be a whole number of at least 1, got 0"),
        ({"loss": None}, "`loss` must be given for batches that aren't mappings"),
        ({"loss": 3}, "`loss` must be callable, got a int"),
        ({"objective": loss}, "`objective` replaces `loss`; give one of the two, got both"),
        ({"loss": None, "objective": loss, "target": "logit"}, "`objective` replaces `target`"),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, r"`loss` must return a scalar tensor, got .* shape \(16,\)"),
    ],
)
def test_bad_arguments(arguments, message):
    _, optimizer = make_trained(0)
    with pytest.raises(ValueError, match=message):
        optimizer.consolidate(task(0), **{"loss": loss, **arguments})
    assert optimizer.gate.tasks == 0


def test_the_arguments_of_version_0_1():
    model = network()
    optimizer = SFAO(model)
    with pytest.raises(ValueError, match=r"got a Sequential; call consolidate\(batches, loss\)"):
        optimizer.consolidate(model, task(0), loss)
    with pytest.raises(TypeError, match=r"by position; call consolidate\(batches, loss\)"):
        optimizer.consolidate(task(0), loss, None)
    assert optimizer.gate.is_empty


def test_a_model_in_the_place_of_the_loss():
    model, optimizer = make_trained(0)
    with pytest.raises(ValueError, match=r"got the model; call consolidate\(batches, loss\)"):
        optimizer.consolidate(task(0), model)
    assert optimizer.gate.tasks == 0


@pytest.mark.parametrize("targets", [torch.randn(16, 3), torch.zeros(16, 1).long(), torch.full((16,), 3)])
def test_the_logit_target_needs_classes(targets):
    with pytest.raises(ValueError, match="class indices"):
        SFAO(network()).consolidate([(task(0)[0][0], targets)], target="logit")


def test_the_model_must_be_known_and_use_the_parameters():
    model = network()
    optimizer = SFAO(layer_groups(model))
    with pytest.raises(ValueError, match="`model` must be given to consolidate"):
        optimizer.consolidate(task(0), loss)
    assert optimizer.consolidate(task(0), loss, model=model) == 12
    with pytest.raises(ValueError, match="`model` must use the gated parameters"):
        optimizer.consolidate(task(0), loss, model=nn.Sequential(copy.deepcopy(model), nn.Linear(3, 3)))
    assert optimizer.gate.tasks == 1
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="at least one gated parameter must require gradients"):
        optimizer.consolidate(task(0), loss, model=model)


def test_weights_that_are_not_finite_are_named():
    model, optimizer = make_trained(1)
    with torch.no_grad():
        model[2].weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"the weights of layer '2' must be finite, got NaN or inf"):
        optimizer.consolidate(task(0), loss)
    assert optimizer.gate.tasks == 1


def test_wrapped_models():
    model = network()
    wanted = SFAO(model)
    wanted.consolidate(task(0), loss)
    for wrapper in (torch.compile(model, backend="eager"), nn.DataParallel(model)):
        optimizer = SFAO(wrapper)
        optimizer.consolidate(task(0), loss)
        assert torch.equal(directions(optimizer, "0"), directions(wanted, "0"))


def test_a_memory_that_spans_a_layer_is_warned_of_once():
    model = network()
    gate = Gate(model).attach(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.warns(
        RuntimeWarning, match=r"span all of their parameters.*'2' \(27 parameters\); set a smaller `capac"
    ):
        gate.consolidate(task(0), target="logit")
    gate.consolidate(task(0), target="logit")
