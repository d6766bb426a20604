"""The gate on a device beside the gate on the host and the reference twin: same decisions, same updates."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from sfao import Decision
from sfao.optim import _choose_path as choose_path
from sfao.optim import _device_path as device_path
from tests.on_device import entry_kernels
from tests.optim.beside import EVERY, PROJECT, Beside, Layers, flat, made_up, remembering

pytestmark = pytest.mark.usefixtures("_on_device")

LIVELY = {"accept_above": 0.6, "discard_below": 0.3}


def stepped(beside: Beside, steps: int = 4) -> Beside:
    for number in range(100, 100 + steps):
        beside.step(made_up(beside.host_model, number % 3, number))
    return beside


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"samples": 3},
        {"samples": 12},
        {"memory_dtype": "bfloat16"},
        {"storage": "factored"},
        {"storage": "factored", "rank": 3, "samples": 4},
        {"storage": "factored", "memory_dtype": "bfloat16"},
        {"cosine": "absolute", "projection": "sequential"},
    ],
    ids=str,
)
def test_every_decision_as_on_the_host(options):
    assert stepped(remembering(Layers(), **LIVELY, **options)).decided == EVERY


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"storage": "factored", "samples": 5},
        {"storage": "factored", "projection": "sequential", "cosine": "absolute"},
    ],
    ids=str,
)
def test_one_gate_for_all_layers(options):
    beside = stepped(remembering(Layers(), granularity="global", accept_above=0.9, discard_below=0.2, **options))
    assert Decision.PROJECT in beside.decided


@pytest.mark.parametrize("form", ["ema", "heavy_ball"])
def test_momentum_and_decay(form):
    stepped(remembering(Layers(), momentum=0.9, momentum_form=form, weight_decay=0.1, **LIVELY), steps=3)


def test_everything_is_launched_on_the_device_of_the_gradients(monkeypatch):
    """Triton launches on the current device, which need not be the one that the model is on."""
    assert device_path.make_current(torch.device("cuda", 3)).idx == 3
    beside = remembering(nn.Linear(5, 4), samples=2, **LIVELY)
    made_current, launched = [], []

    @contextmanager
    def current(device):
        made_current.append(device)
        yield
        made_current.pop()

    launcher = type(entry_kernels.point)
    launch = launcher.__getitem__

    def recorded(kernel, grid):
        launched.append(list(made_current))
        return launch(kernel, grid)

    monkeypatch.setattr(device_path, "make_current", current)
    monkeypatch.setattr(choose_path, "make_current", current)
    monkeypatch.setattr(launcher, "__getitem__", recorded)
    choose_path._find_lack.cache_clear()
    stepped(beside, steps=2)
    device = beside.device_model.weight.device
    assert launched
    assert all(on == [device] for on in launched)


def test_strict():
    beside = remembering(nn.Linear(3, 1, bias=False), strict=True, tasks=0, accept_above=0.5)
    for direction in ([1.0, 0.0, 0.0], [-0.6, 0.8, 0.0]):
        beside.remember([torch.tensor([direction])])
    assert beside.step([torch.tensor([[1.0, 0.0, 0.1]])]) == {"(root)": Decision.PROJECT}
    assert beside.step([torch.tensor([[1.0, 1.2, 0.1]])]) == {"(root)": Decision.ACCEPT}


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize(
    "options", [{"samples": 9}, {"storage": "factored", "rank": 2}, {"storage": "factored", "samples": 3}], ids=str
)
def test_layers_of_many_tiles(options):
    model = nn.ModuleDict({"linear": nn.Linear(37, 35), "conv": nn.Conv2d(4, 16, 3, bias=False)})
    beside = remembering(model, directions=10, **PROJECT, **options)
    stepped(beside, steps=2)


@pytest.mark.parametrize(
    "options",
    [
        {"samples": 3},
        {"storage": "factored", "rank": 30},
        {"memory_dtype": "bfloat16"},
        {"projection": "sequential", "cosine": "absolute", "strict": True},
        {"granularity": "global", "samples": 4},
    ],
    ids=str,
)
def test_tasks_beside_the_reference(options):
    """The twin keeps its own memory. (Directions of full rank: what a randomised SVD leaves out is not compared.)"""
    model = nn.ModuleDict({"linear": nn.Linear(11, 9), "conv": nn.Conv2d(3, 5, 3), "norm": nn.BatchNorm2d(7)})
    beside = Beside(model, reference=True, momentum=0.5, weight_decay=0.1, **LIVELY, **options)
    for task in range(3):
        for number in range(4):
            beside.remember(made_up(model, task, number))
        beside.end_task()
        beside.step(made_up(model, task, 100))
        beside.step(made_up(model, task + 1, 101))
    assert Decision.PROJECT in beside.decided


def test_parameters_and_heads_without_gradient():
    """Frozen ones, and heads that take turns; directions are zero in what had no gradient when they were stored."""
    model = Layers()
    beside = Beside(model, **LIVELY)

    def partly(task: int, number: int, absent: set[int]) -> list:
        gradients = made_up(model, task, number)
        return [None if place in absent else gradient for place, gradient in enumerate(gradients)]

    for number in range(5):
        beside.remember(partly(0, number, {1, 4, 5}))
        beside.remember(partly(0, number + 5, {0, 5, 7}))
    for task in range(2):
        beside.step(partly(task, 100, {1, 4}))
        beside.step(partly(task, 101, {0, 2, 7}))
        beside.step(partly(task, 102, {1, 4}))
    assert beside.decided == EVERY
    assert beside.device.counts == beside.host.counts


def test_a_direction_that_is_zero_where_the_gradient_is_constrains_nothing():
    beside = Beside(nn.Linear(4, 3), accept_above=0.5)
    beside.remember([torch.randn(3, 4), None])
    assert beside.step([None, torch.randn(3)]) == {"(root)": Decision.ACCEPT}
    beside.remember([None, torch.ones(3)])
    beside.step([None, torch.tensor([1.0, -1.0, 0.2])])
    assert beside.decided == {Decision.ACCEPT, Decision.PROJECT}


def test_layers_without_memory_and_gradients_of_zero():
    model = Layers()
    beside = Beside(model, **PROJECT)
    for number in range(3):
        beside.remember([g if place < 2 else None for place, g in enumerate(made_up(model, 0, number))])
    decisions = beside.step(made_up(model, 0, 100))
    assert decisions == {**dict.fromkeys(model, Decision.ACCEPT), "linear": Decision.PROJECT}
    nothing = [torch.zeros_like(g) if place in (0, 1, 3) else g for place, g in enumerate(made_up(model, 0, 101))]
    assert "linear" not in beside.step(nothing)
    assert beside.device.counts == beside.host.counts
    assert beside.device.counts["linear"] == {"accept": 0, "project": 1, "discard": 0, "zero": 1}
    assert beside.device.kept() == {}


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e20, 5e37])
@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_gradients_of_any_size(scale, storage):
    model = nn.ModuleDict({"linear": nn.Linear(20, 17), "norm": nn.BatchNorm1d(30)})
    beside = remembering(model, storage=storage, lr=0.0, samples=5, **PROJECT)
    # The norm of the largest is beyond float32. The smallest are subnormal: nothing is exact to 5e-6 of them.
    gradients = [(gradient.double() * scale).float() for gradient in made_up(model, 1, 50)]
    decisions = beside.step(gradients, tolerance=5e-6 if scale > 1e-35 else 1e-4)
    assert set(decisions.values()) == {Decision.PROJECT}


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_risk_and_kept(storage):
    beside = remembering(Layers(), storage=storage, **LIVELY)
    for number in (100, 101):
        beside.step(made_up(beside.host_model, 0, number))
        assert beside.device.risk() == pytest.approx(beside.host.risk(), abs=1e-5)
        expected = beside.host.kept()
        assert beside.device.kept() == {name: pytest.approx(kept, abs=1e-5) for name, kept in expected.items()}


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_orthogonal_to_directions_that_are_nearly_dependent(storage):
    """Two of the directions differ by 1e-4, and nearly all of the gradient is in their span."""
    model = nn.Linear(30, 20)
    beside = Beside(model, storage=storage, rank=1, **PROJECT)
    torch.manual_seed(3)
    rows, columns, other = torch.randn(20, 1), torch.randn(1, 31), torch.randn(1, 31)
    directions = [rows * columns, rows * (columns + 1e-4 * other), torch.randn(20, 1) * torch.randn(1, 31)]
    for direction in directions:
        beside.remember([direction[:, :30].contiguous(), direction[:, 30].contiguous()])
    gradient = sum(directions) + 1e-3 * torch.randn(20, 31)
    # The update is a thousandth of the gradient, whose own rounding shows in it.
    beside.step([gradient[:, :30].contiguous(), gradient[:, 30].contiguous()], tolerance=1e-3)
    assert beside.device.gate._path.gate.passes > 1
    update = flat(model.parameters(), grad=True)
    held = beside.device.gate.layers[0].memory
    along = held.products.dots([p.grad.view(20, -1) for p in beside.device_model.parameters()]).abs().max()
    assert update.norm() > 0
    assert along <= 5e-6 * update.norm()


def test_a_memory_that_spans_everything_leaves_nothing():
    beside = Beside(nn.Linear(2, 2), **PROJECT)
    for number in range(8):
        beside.remember(made_up(beside.host_model, 0, number))
    beside.step(made_up(beside.host_model, 0, 100))
    assert not flat(beside.device_model.parameters(), grad=True).any()


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_gradients_in_any_order_in_memory(storage):
    """Channels last, then contiguous, then in no order at all; and the state is the same in all of them."""
    model = nn.ModuleDict({"conv": nn.Conv2d(4, 8, 3), "linear": nn.Linear(9, 6)})
    beside = remembering(model, storage=storage, **PROJECT)

    def ordered(number: int, order: str) -> list:
        kernel, bias, weight, offset = made_up(model, 0, number)
        if order == "channels last":
            kernel = kernel.contiguous(memory_format=torch.channels_last)
        if order == "strange":
            kernel, weight = kernel.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0), weight.T.contiguous().T
        return [kernel, bias, weight, offset]

    before = beside.device.state_dict()["gate"]["layers"]["conv"]["memory"]["blocks"][0]["tensors"]
    for number, order in enumerate(("channels last", "channels last", "plain", "strange", "strange", "channels last")):
        beside.step(ordered(100 + number, order))
        after = beside.device.state_dict()["gate"]["layers"]["conv"]["memory"]["blocks"][0]["tensors"]
        assert all(torch.equal(now, then) for now, then in zip(after, before, strict=True))
    assert beside.decided == {Decision.PROJECT}


def test_gradients_that_share_a_buffer_at_any_address():
    """As DistributedDataParallel lays them out: no address is a multiple of 16 for long."""
    model = nn.Linear(24, 16)
    beside = remembering(model, **PROJECT)
    for number, shift in enumerate((1, 0, 3, 3)):
        gradients = made_up(model, 0, 100 + number)
        beside.give(gradients)
        buffer, place = torch.empty(500, device=beside.device_model.weight.device), shift
        for parameter, gradient in zip(beside.device_model.parameters(), gradients, strict=True):
            parameter.grad = buffer[place : place + gradient.numel()].view(gradient.shape).copy_(gradient)
            place += gradient.numel() + shift
        beside.compare()
        # Told to load several entries at once where that is not so, a GPU would fail.
        assert {launches.kind.aligned for launches in beside.device.gate._path.gate._launches} == {shift == 0}
