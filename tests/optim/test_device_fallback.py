"""When gradients on a device are gated on the host all the same: rightly, and said once."""

import importlib.util
import warnings

import pytest
import torch
from torch import nn

from sfao.optim import _choose_path as choose_path
from sfao.optim import _gate_path as gate_path
from sfao.optim._host_path import HostPath, read_gradient
from tests.on_device import DEVICE, entry_kernels, gated_on
from tests.optim.beside import PROJECT, Beside, flat, made_up

pytestmark = pytest.mark.usefixtures("_on_device")


@pytest.fixture(autouse=True)
def _nothing_known_of_devices():
    choose_path._find_lack.cache_clear()
    yield
    choose_path._find_lack.cache_clear()


def without_triton(monkeypatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(choose_path, "find_spec", lambda name: None if name == "triton" else found(name))


def fallen_back(reason: str, dtype: torch.dtype = torch.float32, **options) -> Beside:
    """Step a few times where something is in the way: one warning, and the same as on a host."""
    model = nn.ModuleDict({"a": nn.Linear(6, 4), "b": nn.Linear(4, 3)}).to(dtype)
    beside = Beside(model, **{**PROJECT, **options})
    for number in range(3):
        beside.remember([gradient.to(dtype) for gradient in made_up(model, 0, number)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(100, 103):
            beside.give([gradient.to(dtype) for gradient in made_up(model, 0, number)])
            with gated_on():
                beside.host.step()
            beside.device.step()
            assert isinstance(beside.device.gate._path, HostPath)
            assert beside.device.last_decisions == beside.host.last_decisions
            updates = (flat(m.parameters(), grad=True) for m in (beside.host_model, beside.device_model))
            assert torch.allclose(*updates, atol=1e-6)
    assert [(w.category, str(w.message)) for w in caught] == [
        (RuntimeWarning, f"gated on the host, which is slower: {reason}")
    ]
    return beside


def test_without_triton(monkeypatch):
    without_triton(monkeypatch)
    fallen_back("Triton is not installed")


def test_where_triton_finds_no_compiler(monkeypatch):
    """As on a machine without gcc, where the first launch of any kernel fails."""

    def launch(*args, **kwargs):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable.")

    monkeypatch.setattr(type(entry_kernels.point), "__getitem__", lambda kernel, grid: launch)
    fallen_back("Triton cannot run here (Failed to find C compiler.)")


def test_the_cone_projection():
    fallen_back("the cone projection is solved step by step", projection="cone")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_parameters_that_are_not_float32(dtype):
    fallen_back("the gradients are not all float32", dtype)


def test_what_is_not_in_the_way_any_more(monkeypatch):
    """Back on the device, with the counts of both; and nothing is said a second time."""
    with monkeypatch.context() as patch:
        without_triton(patch)
        beside = fallen_back("Triton is not installed")
        choose_path._find_lack.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        beside.step(made_up(beside.host_model, 0, 200))
    assert beside.device.counts["a"]["project"] == 4
    without_triton(monkeypatch)
    choose_path._find_lack.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        beside.give([None, *made_up(beside.host_model, 0, 201)[1:]])
        beside.device.step()
    assert isinstance(beside.device.gate._path, HostPath)
    assert beside.device.counts["a"]["project"] == 5


def found_with(*gradients: torch.Tensor):
    beside = Beside(nn.Linear(3, 2), **PROJECT)
    beside.device_model.weight.grad, beside.device_model.bias.grad = None, None
    layer = beside.device.gate.layers[0]
    return [(layer, read_gradient(layer, list(gradients)))]


def test_several_devices():
    found = found_with(torch.ones(2, 3, device=DEVICE), torch.ones(2, device="meta"))
    here = torch.ones(1, device=DEVICE).device
    assert choose_path.find_obstacle(found) == f"the gradients are on several devices ({here}, meta)"


def test_nothing_to_gate_on_a_device():
    assert choose_path.find_obstacle([]) == ""
    assert choose_path.find_obstacle(found_with(torch.ones(2, 3, device="meta"), None)) == ""


def test_an_old_gpu(monkeypatch):
    monkeypatch.setattr(choose_path, "_find_failure", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert choose_path._find_lack(torch.device("cuda", 3)) == "its compute capability is below 8.0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    assert choose_path._find_lack(torch.device("cuda", 4)) is None


def test_a_cpu_is_no_device(monkeypatch):
    monkeypatch.setattr(gate_path, "DEVICES", {"cuda"})
    beside = Beside(nn.Linear(3, 2), **PROJECT)
    beside.give(made_up(beside.host_model, 0, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        beside.host.step()
    assert isinstance(beside.host.gate._path, HostPath)
