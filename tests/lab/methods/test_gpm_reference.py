"""GPM, stepped beside GPM as its authors write it: a matrix of inputs, an SVD, dW - dW M M'."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfao.lab.methods import METHODS, Training
from sfao.lab.models import build_model
from sfao.lab.streams.seeding import make_generator
from tests.lab.methods.short_runs import SHAPES, SIZES, events, play, stream, weights

THRESHOLD, INCREASE, EXAMPLES = 0.9, 0.02, 20


class SlowGPM:
    """One layer after the other; bases and projections in float64, bases held in float32."""

    def __init__(self, model: nn.Module, lr: float, momentum: float) -> None:
        self.model = model
        self.sgd = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
        self.layers = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
        self.bases: dict[str, Tensor] = {}
        self.past: list[set[int]] = []

    def step(self, x: Tensor, y: Tensor, outputs: slice) -> None:
        self.sgd.zero_grad()
        functional.cross_entropy(self.model(x)[:, outputs], y).backward()
        own = set(range(outputs.start, outputs.stop))
        last_is_free = all(own.isdisjoint(past) for past in self.past)
        for number, (name, layer) in enumerate(self.layers.items()):
            if name in self.bases and not (last_is_free and number == len(self.layers) - 1):
                self.project(layer, self.bases[name].double())
        if self.bases:
            of_layers = {p for layer in self.layers.values() for p in layer.parameters()}
            for parameter in set(self.model.parameters()) - of_layers:
                parameter.grad = None
        self.sgd.step()

    def project(self, layer: nn.Module, basis: Tensor) -> None:
        rows = layer.weight.grad.flatten(1).double()
        if layer.bias is not None:
            rows = torch.cat([rows, layer.bias.grad.double()[:, None]], 1)
        is_complete = basis.shape[0] == basis.shape[1]
        rows = torch.zeros_like(rows) if is_complete else rows - rows @ basis @ basis.T
        layer.weight.grad.copy_(rows[:, : layer.weight[0].numel()].view_as(layer.weight))
        if layer.bias is not None:
            layer.bias.grad.copy_(rows[:, -1])

    def end_task(self, number: int, x: Tensor, outputs: slice) -> None:
        seen: dict[str, Tensor] = {}
        hooks = [
            layer.register_forward_pre_hook(lambda layer, args, name=name: seen.update({name: columns(layer, *args)}))
            for name, layer in self.layers.items()
        ]
        self.model.eval()
        with torch.no_grad():
            self.model(x)
        self.model.train()
        for hook in hooks:
            hook.remove()
        for name, inputs in seen.items():
            old = self.bases[name].double() if name in self.bases else inputs[:, :0]
            self.bases[name] = grow(old, inputs, min(1.0, THRESHOLD + number * INCREASE)).float()
        self.past.append(set(range(outputs.start, outputs.stop)))
        self.sgd.state.clear()


def columns(layer: nn.Module, x: Tensor) -> Tensor:
    """The inputs of a layer, or its patches, as columns in float64; a row of ones for the bias."""
    if isinstance(layer, nn.Linear):
        found = x.T
    else:
        patches = functional.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        groups = patches.chunk(layer.groups, 1)
        found = torch.cat([group.transpose(0, 1).flatten(1) for group in groups], 1)
    ones = torch.ones(int(layer.bias is not None), found.shape[1])
    return torch.cat([found, ones]).double()


def grow(basis: Tensor, inputs: Tensor, threshold: float) -> Tensor:
    """Equation 9: the fewest k with ||proj(R)||^2 + ||(R^)_k||^2 >= threshold ||R||^2."""
    outside = inputs - basis @ basis.T @ inputs
    left, values, _ = torch.linalg.svd(outside, full_matrices=False)
    total = float(inputs.square().sum())
    covered = total - float(outside.square().sum())
    added = 0
    while covered < threshold * total and basis.shape[1] + added < len(basis) and values[added] > 1e-6 * total**0.5:
        covered += float(values[added].square())
        added += 1
    return torch.cat([basis, left[:, :added]], 1)


def build(kind: str, has_bias: bool) -> nn.Module:
    if kind in SHAPES and has_bias:
        return build_model(kind, SHAPES[kind], 6, 0, **SIZES[kind])
    torch.manual_seed(0)
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 10, has_bias), nn.ReLU(), nn.Linear(10, 6, has_bias))
    if kind == "cnn":
        return nn.Sequential(
            *(nn.Conv2d(2, 5, 3, padding=1, bias=has_bias), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            nn.Linear(80, 6, has_bias),
        )
    return nn.Sequential(
        *(nn.Conv2d(2, 6, 3, padding=1, bias=has_bias), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.Conv2d(6, 8, (3, 2), stride=2, groups=2, bias=has_bias), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(96, 10, has_bias), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 6, has_bias)),
    )


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    ("kind", "scenario"), [("mlp", "domain"), ("cnn", "class"), ("normalized", "task"), ("normalized", "domain")]
)
def test_every_step_is_that_of_the_reference(kind, scenario, has_bias, momentum):
    tasks = stream(scenario, "mlp" if kind == "mlp" else "cnn")
    model = build(kind, has_bias)
    slow = SlowGPM(copy.deepcopy(model), 0.05, momentum)
    training = Training(0.05, momentum, "heavy_ball", weight_decay=0.0, batch_size=8, seed=0)
    options = METHODS["gpm"].Options(threshold=THRESHOLD, threshold_increase=INCREASE, examples=EXAMPLES)
    run = METHODS["gpm"](model, training, options)
    for event in events(tasks):
        play(run, [event])
        what, number, arguments = event
        if what == "step":
            slow.step(*arguments)
            difference = (weights(run) - weights(slow.model)).norm()
            assert difference <= 1e-5 * weights(slow.model).norm()
        elif what == "end":
            task = arguments[1]
            batches = [x for x, _ in task.train.batches(8, make_generator(number, "end"))]
            slow.end_task(number, torch.cat(batches)[:EXAMPLES], task.outputs)
            assert {n: b.shape for n, b in run.bases.items()} == {n: b.shape for n, b in slow.bases.items()}
    held = {name: basis.float() for name, basis in slow.bases.items()}
    assert run.memory_bytes == sum(basis.nbytes for basis in held.values()) > 0
    for name, basis in run.bases.items():
        # The same subspace; single axes may be turned within it, or about.
        assert torch.allclose(basis @ basis.T, held[name] @ held[name].T, atol=1e-4)
