"""A gate in front of an optimizer that fails, threads beside a gate, and parameters that no gate can watch."""

import copy
import gc
import threading
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from sfao import SFAO, Gate, layer_groups
from tests.optim.problem import loss, network, task, train

PROJECT = {"accept_above": 1, "discard_below": -1}
DISCARD = {"accept_above": 1, "discard_below": 1}


class Failing(torch.optim.SGD):
    """Moves one parameter, then fails, when it is told to."""

    fails = False

    def step(self, closure=None):
        if self.fails:
            self.param_groups[0]["params"][0].data.add_(1.0)
            raise ValueError("no step today")
        return super().step(closure)


def gated(**options) -> tuple[nn.Module, Failing, Gate]:
    model = network()
    optimizer = Failing(model.parameters(), lr=0.1)
    gate = Gate(layer_groups(model), **options).attach(optimizer)
    train(model, optimizer, task(0))
    gate.consolidate(model, task(0), loss)
    optimizer.zero_grad()
    loss(model(task(1)[0][0]), task(1)[0][1]).backward()
    return model, optimizer, gate


def read(model: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("options", [PROJECT, DISCARD, {"memory": "both"}, {}], ids=str)
@pytest.mark.parametrize("is_closed", [False, True])
def test_gradients_are_given_back(options, is_closed):
    model, optimizer, gate = gated(**options)
    gradients, places = read(model), [parameter.grad for parameter in model.parameters()]
    optimizer.fails = True
    with pytest.raises(ValueError, match="no step today"):
        optimizer.step((lambda: 0.0) if is_closed else None)
    assert all(p.grad is place for p, place in zip(model.parameters(), places, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(read(model), gradients, strict=True))
    optimizer.fails = False
    optimizer.step()
    assert sum(gate.counts["0"].values()) > 0


def test_what_was_added_without_being_softened_is_taken_back():
    model, optimizer, _ = gated()
    before = copy.deepcopy(model.state_dict())
    optimizer.fails = True
    with pytest.raises(ValueError, match="no step today"):
        optimizer.step()
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())


def test_a_scheduler_before_and_one_after():
    model, optimizer, gate = gated(**PROJECT)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    scheduler.step()
    gate.detach()
    optimizer.step()
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(other, 1)
    wrapped = other.step
    again = Gate(layer_groups(model), **PROJECT).attach(other)
    other.step()
    assert other.step is not wrapped
    again.detach()
    assert other.step is wrapped


def test_an_optimizer_is_itself_again_and_goes_when_nobody_holds_it():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(layer_groups(model)).attach(optimizer)
    gate.detach()
    assert "step" not in vars(optimizer)
    gate.attach(optimizer)
    gone = ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert gone() is None
    finally:
        gc.enable()


def test_other_threads_see_no_other_precision():
    model = network()
    optimizer = SFAO(layer_groups(model), lr=0.1, **PROJECT)
    train(model, optimizer, task(0))
    optimizer.consolidate(model, task(0), loss)
    found, inside, looked = [], threading.Event(), threading.Event()

    def look() -> None:
        assert inside.wait(60)
        found.extend([torch.get_float32_matmul_precision(), torch._C._len_torch_dispatch_stack()])
        looked.set()

    def hold(layer, inputs, outputs):
        inside.set()
        assert looked.wait(60)

    thread = threading.Thread(target=look)
    thread.start()
    torch.set_float32_matmul_precision("medium")
    try:
        before = optimizer.gate._path.step
        optimizer.gate._path.step = lambda softening: (hold(None, None, None), before(softening))[1]
        optimizer.zero_grad()
        loss(model(task(1)[0][0]), task(1)[0][1]).backward()
        optimizer.step()
        thread.join(60)
        assert found == ["medium", 0]
    finally:
        torch.set_float32_matmul_precision("highest")
    assert optimizer.risk() < 1e-6


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        (torch.zeros(3, dtype=torch.complex64), "parameters must be real numbers, got one of dtype torch.complex64 in"),
        (torch.zeros(3, device="meta"), "parameters must hold values, got one on the device 'meta' in 'x'"),
        (torch.zeros(1).expand(3), "parameters must have a place for every entry, got an expanded one of strides"),
    ],
)
@pytest.mark.parametrize("kind", [SFAO, Gate])
def test_parameters_that_cannot_be_gated(parameter, message, kind):
    with pytest.raises(ValueError, match=r".") as caught:
        kind([{"params": [nn.Parameter(parameter)], "name": "x"}])
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1


def test_a_lazy_parameter_is_named():
    with pytest.raises(ValueError, match="parameters must have a shape before they are gated, got a lazy one in"):
        SFAO(layer_groups(nn.Sequential(nn.LazyLinear(3))))
