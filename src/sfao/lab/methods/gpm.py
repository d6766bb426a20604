"""Gradient projection memory (Saha et al. 2021): no step changes what past inputs of a layer are mapped to.

At the end of a task the inputs of every Linear and Conv2d layer are collected, and their leading singular vectors
join an orthonormal basis M of the layer's input space; from then on its gradient is dW - dW M M'. The authors'
networks have no biases; here a bias is the weight of one more input that is always 1, so it is projected too. Other
parameters (BatchNorm's) are frozen after the first task, as in the authors' code, though running statistics go on.
Gradients are projected before momentum: as momentum starts anew at a task boundary and M is fixed within a task, it
never leaves the complement of M. (Weight decay does; it is not part of the method.)
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from sfao.lab.methods.input_moments import collect_inputs, find_input_layers
from sfao.lab.methods.layer_rows import read_gradient_rows, write_gradient_rows
from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.stream import Task

# Singular values smaller than this, relative to the largest, are rounding of float32 inputs.
SMALLEST_SINGULAR_VALUE = 1e-6

#: Places of the counts of a layer.
ACCEPTED, PROJECTED, ZERO = range(3)

Fraction = Annotated[float, Field(gt=0, le=1)]


def grow_basis(basis: Tensor, inputs: Tensor, threshold: float) -> Tensor:
    """Add the fewest directions to the basis that put `threshold` of the inputs' energy into it (equation 9)."""
    outside = inputs - basis @ (basis.T @ inputs)
    vectors, values, _ = torch.linalg.svd(outside, full_matrices=False)
    # On the host: a GPU has no deterministic form of sums that go on from value to value.
    values, total = values.cpu(), inputs.square().sum().cpu()
    # How much would be covered before each direction is added: it is needed while that falls short.
    covered = 1 - (values.square().flip(0).cumsum(0).flip(0) / total)
    needed = (covered < threshold) & (values > SMALLEST_SINGULAR_VALUE * total.sqrt())
    added = vectors[:, : min(int(needed.sum()), len(basis) - basis.shape[1])]
    # Once more, for directions short enough to have kept some rounding along the basis.
    return torch.cat([basis, torch.linalg.qr(added - basis @ (basis.T @ added)).Q], dim=1)


def project(rows: Tensor, basis: Tensor) -> Tensor:
    """Return rows of a gradient without their part along the columns of a basis: dW - dW M M' (equation 6)."""
    if basis.shape[0] == basis.shape[1]:  # nothing is left, not even rounding
        return torch.zeros_like(rows)
    return torch.addmm(rows, rows @ basis, basis.T, alpha=-1)


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
        self.layers = find_input_layers(model)
        self.thresholds = per_layer(self.options.threshold, list(self.layers))
        #: The directions that no step moves along, as orthonormal columns, by layer.
        self.bases: dict[str, Tensor] = {}
        self.past_outputs: list[slice] = []
        #: Steps that were accepted, projected or had a zero gradient, by layer, on the device of the model.
        self.counts = {name: torch.zeros(3, dtype=torch.int64, device=self.device) for name in self.layers}
        held = {parameter for layer in self.layers.values() for parameter in layer.parameters()}
        #: The parameters that are frozen after the first task.
        self.others = [parameter for parameter in model.parameters() if parameter not in held]

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets, outputs)
        loss.backward()
        is_last_free = not any(overlap(outputs, past) for past in self.past_outputs)
        for name, layer in self.layers.items():
            gradient = read_gradient_rows(layer)
            if gradient is None:
                continue
            is_free = is_last_free and name == list(self.layers)[-1]
            basis = None if is_free else self.bases.get(name)
            if basis is not None:
                write_gradient_rows(layer, project(gradient, basis))
            has_gradient = gradient.any()
            self.counts[name][ACCEPTED if basis is None else PROJECTED] += has_gradient
            self.counts[name][ZERO] += ~has_gradient
        if self.past_outputs:
            for parameter in self.others:
                parameter.grad = None
        self.optimizer.step()
        return loss.detach()

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        found = collect_inputs(self.model, self.layers, self.batches(task, generator), self.options.examples)
        for name, moments in found.items():
            values, axes = moments.find_axes()
            old = self.bases.get(name, axes.new_empty(axes.shape[1], 0)).to(axes)
            threshold = min(1.0, self.thresholds[name] + number * self.options.threshold_increase)
            self.bases[name] = grow_basis(old, axes.T * values.sqrt(), threshold).float()
        self.past_outputs.append(task.outputs)

    @property
    def memory_bytes(self) -> int:
        return sum(basis.nbytes for basis in self.bases.values())

    @property
    def decisions(self) -> dict[str, dict[str, int]]:
        counts = {name: own.tolist() for name, own in self.counts.items()}
        return {
            name: {"accept": own[ACCEPTED], "project": own[PROJECTED], "discard": 0, "zero": own[ZERO]}
            for name, own in counts.items()
        }

    def concerns(self) -> list[str]:
        found = [
            f"{self.name}: the basis of layer {name!r} spans all of its {len(basis)} inputs; nothing is left to learn"
            for name, basis in self.bases.items()
            if basis.shape[1] == len(basis)
        ]
        if not any(counts["project"] for counts in self.decisions.values()):
            found.append(f"{self.name}: no step was ever projected; every update equalled SGD's")
        return found

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "bases": dict(self.bases),
            "counts": {name: counts.clone() for name, counts in self.counts.items()},
            "past_outputs": [[outputs.start, outputs.stop] for outputs in self.past_outputs],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.bases = {name: basis.to(self.device) for name, basis in state["bases"].items()}
        self.counts = {name: counts.to(self.device, copy=True) for name, counts in state["counts"].items()}
        self.past_outputs = [slice(start, stop) for start, stop in state["past_outputs"]]


def overlap(one: slice, other: slice) -> bool:
    return bool(one.start < other.stop and other.start < one.stop)


def per_layer(threshold: float | Sequence[float], names: list[str]) -> dict[str, float]:
    values = [threshold] * len(names) if isinstance(threshold, float) else list(threshold)
    if len(values) != len(names):
        raise ValueError(
            f"`threshold` must be one number or one for each of the layers {', '.join(names)}, got {len(values)}"
        )
    return dict(zip(names, values, strict=True))
