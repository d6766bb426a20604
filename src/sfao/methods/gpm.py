"""Gradient projection memory (Saha et al. 2021): no step changes what past inputs of a layer are mapped to.

At the end of a task the inputs of every Linear and Conv2d layer are collected, and their leading singular vectors
join an orthonormal basis M of the layer's input space; from then on its gradient is dW - dW M M'. The authors'
networks have no biases; here a bias is the weight of one more input that is always 1, so it is projected too. Other
parameters (BatchNorm's) are frozen after the first task, as in the authors' code, though running statistics go on.
Gradients are projected before momentum: as momentum starts anew at a task boundary and M is fixed within a task, it
never leaves the complement of M. (Weight decay does; it is not part of the method.)
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from sfao.gating.decision import COUNTED
from sfao.methods.input_space import InputLayer, input_layers, representations
from sfao.methods.method import Method, MethodOptions, Training
from sfao.methods.search_range import Range, SearchSpace
from sfao.streams.stream import Task

# Singular values smaller than this, relative to the largest, are rounding of float32 inputs.
SMALLEST_SINGULAR_VALUE = 1e-6

Fraction = Annotated[float, Field(gt=0, le=1)]


def grow_basis(basis: Tensor, inputs: Tensor, threshold: float) -> Tensor:
    """Add the fewest directions to the basis that put `threshold` of the inputs' energy into it (equation 9)."""
    outside = inputs - basis @ (basis.T @ inputs)
    vectors, values, _ = torch.linalg.svd(outside, full_matrices=False)
    total = inputs.square().sum()
    # How much would be covered before each direction is added: it is needed while that falls short.
    covered = 1 - (values.square().flip(0).cumsum(0).flip(0) / total)
    needed = (covered < threshold) & (values > SMALLEST_SINGULAR_VALUE * total.sqrt())
    added = vectors[:, : min(int(needed.sum()), len(basis) - basis.shape[1])]
    # Once more, for directions short enough to have kept some rounding along the basis.
    return torch.cat([basis, torch.linalg.qr(added - basis @ (basis.T @ added)).Q], dim=1)


def project_(layer: InputLayer, basis: Tensor) -> None:
    """Remove the part inside the basis from every row of the layer's gradient [dW | db], in place."""
    weight, bias = layer.weight.grad, None if layer.bias is None else layer.bias.grad
    if weight is None:
        return
    rows = weight.flatten(1)
    gradient = rows if bias is None else torch.cat([rows, bias[:, None]], dim=1)
    # Exactly zero off a complete basis: rounding would still move what has nowhere to go.
    is_complete = basis.shape[1] == len(basis)
    outside = torch.zeros_like(gradient) if is_complete else gradient - (gradient @ basis) @ basis.T
    weight.copy_(outside[:, : rows.shape[1]].view_as(weight))
    if bias is not None:
        bias.copy_(outside[:, -1])


class GPMOptions(MethodOptions):
    #: Share of the inputs' energy to keep, one for all layers or a list with one per layer. 0.95, then 0.99 in the
    #: authors' Permuted MNIST; 0.97 in their Split CIFAR-100.
    threshold: Fraction | tuple[Fraction, ...] = 0.97
    #: Added per past task; 0.003 in the authors' Split CIFAR-100.
    threshold_increase: NonNegativeFloat = 0.0
    #: Training examples whose inputs are collected; 300 in the authors' Permuted MNIST.
    examples: PositiveInt = 300


class GPM(Method):
    """The last layer is not projected where every task has its own outputs: the rows of other tasks get no gradient."""

    name = "gpm"
    Options = GPMOptions
    options: GPMOptions
    search_space: ClassVar[SearchSpace] = {"threshold": Range(0.8, 0.999), "threshold_increase": Range(0, 0.01)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.layers = input_layers(model)
        self.thresholds = _per_layer(self.options.threshold, list(self.layers))
        self.bases: dict[str, Tensor] = {}
        self.past_outputs: list[slice] = []
        self.counts = {name: dict.fromkeys(COUNTED, 0) for name in self.layers}
        held = {parameter for layer in self.layers.values() for parameter in layer.parameters()}
        self._others = [parameter for parameter in model.parameters() if parameter not in held]

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets, outputs)
        loss.backward()
        self._project(outputs)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def _project(self, outputs: slice) -> None:
        free = None if any(_overlap(outputs, past) for past in self.past_outputs) else list(self.layers)[-1]
        for name, layer in self.layers.items():
            projects = name in self.bases and name != free
            if projects:
                project_(layer, self.bases[name])
            self.counts[name]["project" if projects else "accept"] += 1
        if self.bases:
            for parameter in self._others:
                parameter.grad = None

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        seen = representations(self.model, self.layers, self._inputs(task, generator))
        for name, inputs in seen.items():
            old = self.bases[name].double() if name in self.bases else inputs.new_empty(len(inputs), 0)
            threshold = min(1.0, self.thresholds[name] + number * self.options.threshold_increase)
            self.bases[name] = grow_basis(old, inputs, threshold).to(self.layers[name].weight.dtype)
        self.past_outputs.append(task.outputs)

    def _inputs(self, task: Task, generator: torch.Generator) -> Iterator[Tensor]:
        left = self.options.examples
        for inputs, _ in self.batches(task, generator):
            yield inputs[:left]
            left -= len(inputs)
            if left <= 0:
                return

    @property
    def memory_bytes(self) -> int:
        return sum(basis.nbytes for basis in self.bases.values())

    @property
    def decisions(self) -> dict[str, dict[str, int]]:
        return {name: dict(counts) for name, counts in self.counts.items()}

    def concerns(self) -> list[str]:
        found = [
            f"{self.name}: the basis of layer {name!r} spans all of its {len(basis)} inputs; nothing is left to learn"
            for name, basis in self.bases.items()
            if basis.shape[1] == len(basis)
        ]
        if not any(counts["project"] for counts in self.counts.values()):
            found.append(f"{self.name}: no step was ever projected; every update equalled SGD's")
        return found

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "bases": dict(self.bases),
            "past_outputs": [[past.start, past.stop] for past in self.past_outputs],
            "counts": self.decisions,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.bases = {name: basis.to(self.device) for name, basis in state["bases"].items()}
        self.past_outputs = [slice(start, stop) for start, stop in state["past_outputs"]]
        self.counts = {name: dict(counts) for name, counts in state["counts"].items()}


def _overlap(one: slice, other: slice) -> bool:
    return bool(one.start < other.stop and other.start < one.stop)


def _per_layer(threshold: float | Sequence[float], names: list[str]) -> dict[str, float]:
    values = [threshold] * len(names) if isinstance(threshold, float) else list(threshold)
    if len(values) != len(names):
        raise ValueError(
            f"`threshold` must be one number or one for each of the layers {', '.join(names)}, got {len(values)}"
        )
    return dict(zip(names, values, strict=True))
