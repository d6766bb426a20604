"""Scaled gradient projection (Saha and Roy 2023): GPM that takes less where past inputs matter less.

Every axis of a layer's input space has an importance between 0 and 1, and that share of the gradient along it is
taken: dW - dW M diag(importances) M'. Importances come from how much of a task's inputs lies along an axis, and add up
over tasks. Bias, last layer and other parameters are as in `gpm`.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import NonNegativeFloat
from torch import Tensor, nn

from sfao.lab.methods.gpm import GPMOptions, grow_basis, overlap, per_layer
from sfao.lab.methods.input_moments import InputMoments, collect_inputs, find_input_layers
from sfao.lab.methods.layer_rows import read_gradient_rows, write_gradient_rows
from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.stream import Task


class Space(NamedTuple):
    """Axes as orthonormal columns, and how much is taken along each."""

    basis: Tensor
    importances: Tensor


def weigh(lengths: Tensor, scale: float) -> Tensor:
    """Return the importances of axes along which inputs are so long: 1 for the longest (equation 5)."""
    return (scale + 1) * lengths / (scale * lengths + lengths.max())


def grow_space(space: Space, inputs: Tensor, threshold: float, scale: float) -> Space:
    """Add the axes that the inputs (columns) need, as GPM does, and what these inputs say of all axes."""
    basis = grow_basis(space.basis, inputs, threshold)
    found = weigh(torch.linalg.vector_norm(basis.T @ inputs, dim=1), scale)
    before = torch.cat([space.importances, found.new_zeros(len(found) - len(space.importances))])
    return Space(basis, (before + found).clamp(max=1.0))


def take(rows: Tensor, space: Space) -> Tensor:
    """Return rows of a gradient without the share of each axis that its importance says."""
    basis, importances = (tensor.to(rows) for tensor in space)
    return rows - (rows @ basis * importances) @ basis.T


class SGPOptions(GPMOptions):
    #: How quickly an axis becomes as important as the longest; 10 in the authors' Split CIFAR-100.
    scale: NonNegativeFloat = 10.0


class SGP(Method):
    name = "sgp"
    Options = SGPOptions
    options: SGPOptions
    search_space: ClassVar[SearchSpace] = {"threshold": Range(0.8, 0.999), "scale": Range(0.5, 50, log=True)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.layers = find_input_layers(model)
        self.thresholds = per_layer(self.options.threshold, list(self.layers))
        self.spaces: dict[str, Space] = {}
        self.past_outputs: list[slice] = []
        held = {parameter for layer in self.layers.values() for parameter in layer.parameters()}
        #: The parameters that are frozen after the first task.
        self.others = [parameter for parameter in model.parameters() if parameter not in held]

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets, outputs)
        loss.backward()
        is_last_free = not any(overlap(outputs, past) for past in self.past_outputs)
        for name, space in self.spaces.items():
            if not (is_last_free and name == list(self.layers)[-1]):
                gradient = read_gradient_rows(self.layers[name])
                if gradient is not None:
                    write_gradient_rows(self.layers[name], take(gradient, space))
        if self.past_outputs:
            for parameter in self.others:
                parameter.grad = None
        self.optimizer.step()
        return loss.detach()

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        found = collect_inputs(self.model, self.layers, self.batches(task, generator), self.options.examples)
        for name, moments in found.items():
            self.spaces[name] = self._grow(name, moments, number)
        self.past_outputs.append(task.outputs)

    def _grow(self, name: str, moments: InputMoments, number: int) -> Space:
        held = self.spaces.get(name)
        values, axes = moments.find_axes()
        none = Space(axes.new_empty(axes.shape[1], 0), axes.new_empty(0))
        before = none if held is None else Space(held.basis.to(axes), held.importances.to(axes))
        threshold = min(1.0, self.thresholds[name] + number * self.options.threshold_increase)
        return Space(*(t.float() for t in grow_space(before, axes.T * values.sqrt(), threshold, self.options.scale)))

    @property
    def memory_bytes(self) -> int:
        return sum(tensor.nbytes for space in self.spaces.values() for tensor in space)

    def concerns(self) -> list[str]:
        if len(self.past_outputs) > 1:
            return []
        return [f"{self.name}: no step was ever projected; every update equalled SGD's"]

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "spaces": {name: list(space) for name, space in self.spaces.items()},
            "past_outputs": [[outputs.start, outputs.stop] for outputs in self.past_outputs],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.spaces = {name: Space(*(t.to(self.device) for t in held)) for name, held in state["spaces"].items()}
        self.past_outputs = [slice(start, stop) for start, stop in state["past_outputs"]]
