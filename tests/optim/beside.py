"""An optimizer gated on the host and one gated on the device, over equal models, stepped side by side."""

import copy
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from sfao import SFAO, Decision, layer_groups
from sfao.optim._device_path import DevicePath
from sfao.optim.reference import ReferenceSFAO
from tests.on_device import DEVICE, gated_on

Gradients = Sequence[Tensor | None]

EVERY = set(Decision)
PROJECT = {"accept_above": 1, "discard_below": -1}


class Layers(nn.ModuleDict):
    """Layers of odd sizes: gradients are made up, so nothing is computed with them."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        super().__init__(
            {
                "linear": nn.Linear(33, 19),
                "aligned": nn.Linear(24, 16, bias=False),
                "conv": nn.Conv2d(3, 5, 3),
                "norm": nn.BatchNorm2d(7),
                "one_row": nn.Linear(21, 1),
                "one_column": nn.Linear(1, 18),
            }
        )


def made_up(model: nn.Module, task: int, number: int) -> list[Tensor]:
    """Gradients of a task: some way along what its gradients have in common, back and forth, the rest noise."""
    common = torch.Generator().manual_seed(task)
    own = torch.Generator().manual_seed(1000 * task + number + 1)
    way = float(torch.randn(1, generator=own))
    return [
        way * torch.randn(p.shape, generator=common) + 0.8 * torch.randn(p.shape, generator=own)
        for p in model.parameters()
    ]


class Beside:
    def __init__(self, model: nn.Module, *, reference: bool = False, **options) -> None:
        self.host_model, self.device_model = model, copy.deepcopy(model).to(DEVICE)
        options = {"lr": 0.05, **options}
        self.host = SFAO(layer_groups(self.host_model), **options)
        self.device = SFAO(layer_groups(self.device_model), **options)
        self.reference = self._referring(copy.deepcopy(model), options) if reference else None
        self.decided: set[Decision] = set()

    def _referring(self, model: nn.Module, options) -> ReferenceSFAO:
        groups = [
            {**group, "params": own["params"]}
            for group, own in zip(self.host.param_groups, layer_groups(model), strict=True)
        ]
        return ReferenceSFAO(groups, granularity=options.get("granularity", "layer"), seed=options.get("seed", 0))

    def give(self, gradients: Gradients) -> None:
        """Let these be the gradients everywhere; on the device at new addresses."""
        for model, device in ((self.host_model, "cpu"), (self.device_model, DEVICE)):
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = None if gradient is None else _copied(gradient, device)
        if self.reference is not None:
            parameters = [p for group in self.reference.groups for p in group["params"]]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = None if gradient is None else gradient.clone()

    def remember(self, gradients: Gradients) -> None:
        self.give(gradients)
        stored = self.host.remember()
        assert self.device.remember() == stored
        if self.reference is not None:
            assert self.reference.remember() == stored

    def end_task(self) -> None:
        for optimizer in (self.host, self.device, self.reference):
            if optimizer is not None:
                optimizer.end_task()

    def step(self, gradients: Gradients, tolerance: float = 5e-6) -> dict[str, Decision]:
        self.give(gradients)
        return self.compare(tolerance)

    def compare(self, tolerance: float = 5e-6) -> dict[str, Decision]:
        """Step all of them and compare what was decided, by which cosines, and what has become of the gradients."""
        with gated_on():
            self.host.step()
        self.device.step()
        assert isinstance(self.device.gate._path, DevicePath), "not gated on the device"
        decisions = self.device.last_decisions
        assert decisions == self.host.last_decisions
        assert_close(self.device.last_cosines, self.host.last_cosines)
        self._compare_updates(tolerance)
        if self.reference is not None:
            assert self.reference.step() == decisions
            self._compare_with_reference(tolerance)
        self.decided |= set(decisions.values())
        return decisions

    def _compare_updates(self, tolerance: float) -> None:
        for layer, on_device in zip(self.host.gate.layers, self.device.gate.layers, strict=True):
            expected = flat(layer.parameters, grad=True)
            error = (flat(on_device.parameters, grad=True) - expected).norm()
            assert error <= tolerance * expected.norm() + 1e-44, (layer.name, float(error / expected.norm()))
            moved = flat(layer.parameters)
            assert torch.allclose(flat(on_device.parameters), moved, rtol=1e-6, atol=tolerance * float(moved.norm()))

    def _compare_with_reference(self, tolerance: float) -> None:
        for layer in self.device.gate.layers:
            expected = self.reference.layers[layer.name].update
            error = (flat(layer.parameters, grad=True) - expected).norm()
            assert error <= tolerance * expected.norm() + 1e-44, (layer.name, float(error / expected.norm()))


def remembering(model: nn.Module, tasks: int = 2, directions: int = 6, **options) -> Beside:
    """Side by side, with some directions of some tasks remembered."""
    beside = Beside(model, **options)
    for task in range(tasks):
        for number in range(directions):
            beside.remember(made_up(model, task, number))
        beside.end_task()
    return beside


def flat(parameters: Iterable[Tensor], grad: bool = False) -> Tensor:
    """The parameters, or their gradients, as one vector."""
    tensors = [p.grad if grad else p.detach() for p in parameters if p.grad is not None or not grad]
    return torch.cat([tensor.reshape(-1).double().cpu() for tensor in tensors]) if tensors else torch.zeros(0)


def assert_close(cosines: dict[str, float], expected: dict[str, float]) -> None:
    assert cosines.keys() == expected.keys()
    assert all(abs(cosines[name] - expected[name]) <= 1e-5 for name in expected)


def _copied(gradient: Tensor, device: str | torch.device) -> Tensor:
    """In the same order in memory."""
    empty = torch.empty_strided(gradient.shape, gradient.stride(), dtype=gradient.dtype, device=device)
    return empty.copy_(gradient)
