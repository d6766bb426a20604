"""Gradient projection memory (Saha et al. 2021): no step changes what past inputs of a layer are mapped to.

At the end of a task the inputs of every Linear and Conv2d layer are collected, and their leading singular vectors
join an orthonormal basis M of the layer's input space; from then on its gradient is dW - dW M M'. The authors'
networks have no biases; here a bias is the weight of one more input that is always 1, so it is projected too. Other
parameters (BatchNorm's) are frozen after the first task, as in the authors' code, though running statistics go on.
Gradients are projected before momentum: as momentum starts anew at a task boundary and M is fixed within a task, it
never leaves the complement of M. (Weight decay does; it is not part of the method.)

The projection is that of SFAO's gate on input spaces of which nothing is kept; which axes they hold is GPM's choice.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from sfao.gating.input_moments import AllInputMoments, InputMoments
from sfao.gating.subspace import Subspace
from sfao.methods.method import Method, MethodOptions, Training
from sfao.methods.search_range import Range, SearchSpace
from sfao.optim._consolidation.inputs import gather_inputs
from sfao.optim.layers import Layer, layer_groups
from sfao.optim.sfao import SFAO
from sfao.streams.labelled_images import Batch
from sfao.streams.stream import Task

# Singular values smaller than this, relative to the largest, are rounding of float32 inputs.
SMALLEST_SINGULAR_VALUE = 1e-6

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
    optimizer: SFAO
    search_space: ClassVar[SearchSpace] = {"threshold": Range(0.8, 0.999), "threshold_increase": Range(0, 0.01)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.layers = _find_layers(model, self.optimizer.gate.layers)
        self.thresholds = per_layer(self.options.threshold, list(self.layers))
        self.past_outputs: list[slice] = []
        held = {parameter for layer in self.layers.values() for parameter in layer.parameters}
        #: The parameters that are frozen after the first task.
        self.others = [parameter for parameter in model.parameters() if parameter not in held]

    def make_optimizer(self) -> SFAO:
        seed = self.training.seed
        return SFAO(layer_groups(self.model), **self.descent(), seed=seed, memory="subspace", keep=0.0, restore=1.0)

    @property
    def spaces(self) -> dict[str, Subspace]:
        """The axes that no step may move along, by layer."""
        return {name: layer.spaces[0] for name, layer in self.layers.items()}

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets, outputs)
        loss.backward()
        list(self.layers.values())[-1].options["keep"] = self.keep_of_last(outputs)
        if self.past_outputs:
            for parameter in self.others:
                parameter.grad = None
        self.optimizer.step()
        return loss.detach()

    def keep_of_last(self, outputs: slice) -> float:
        """Return the share of the last layer's gradients that is kept: all where no past task has used its outputs."""
        return 0.0 if any(overlap(outputs, past) for past in self.past_outputs) else 1.0

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        self.optimizer.end_task()
        weights = {layer.parameters[0]: len(layer.parameters) == 2 for layer in self.layers.values()}
        examples = list(islice(split_into_examples(self.batches(task, generator)), self.options.examples))
        found = gather_inputs(self.model, examples, weights, generator, AllInputMoments).moments
        self.optimizer.gate.set_axes(
            {
                name: self._choose_axes(name, found[layer.parameters[0]], number)
                for name, layer in self.layers.items()
                if layer.parameters[0] in found
            }
        )
        self.past_outputs.append(task.outputs)

    def _choose_axes(self, name: str, moments: InputMoments, number: int) -> Tensor:
        """Return the axes of a layer, as rows, once the inputs of task `number` have joined them."""
        if not moments.is_finite:
            raise ValueError(f"the inputs of layer {name!r} must be finite, but were not")
        old = self.spaces[name].plain_axes.to(self.device)
        values, axes = moments.find_axes(old[:0])
        threshold = min(1.0, self.thresholds[name] + number * self.options.threshold_increase)
        return grow_basis(old.to(axes).T, axes.T * values.sqrt(), threshold).T

    @property
    def memory_bytes(self) -> int:
        """Bytes of the axes: nothing else is kept of past tasks."""
        return sum(space.axes.nbytes for space in self.spaces.values())

    @property
    def decisions(self) -> dict[str, dict[str, int]]:
        """{layer: {accept, project, discard, zero}}; a projection that leaves nothing is one like any other."""
        counts = self.optimizer.counts
        return {name: count_discards_as_projections(counts[name]) for name in self.layers}

    def concerns(self) -> list[str]:
        found = [
            f"{self.name}: the basis of layer {name!r} spans all of its {space.layout.width} inputs; "
            "nothing is left to learn"
            for name, space in self.spaces.items()
            if len(space.axes) == space.layout.width
        ]
        if not any(counts["project"] for counts in self.decisions.values()):
            found.append(f"{self.name}: no step was ever projected; every update equalled SGD's")
        return found

    def state_dict(self) -> dict[str, Any]:
        past = [[outputs.start, outputs.stop] for outputs in self.past_outputs]
        return {**super().state_dict(), "past_outputs": past}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "bases" in state:
            self._load_older(state)
        else:
            super().load_state_dict(state)
        self.past_outputs = [slice(start, stop) for start, stop in state["past_outputs"]]

    def _load_older(self, state: dict[str, Any]) -> None:
        """Continue a state from when the method held its bases, as columns, beside a plain optimizer."""
        # One param group then, now one per layer, of the same parameters in the same order.
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state["optimizer"]["state"]})
        self.optimizer.gate.set_axes({name: basis.T.to(self.device) for name, basis in state["bases"].items()})
        for name, counts in state["counts"].items():
            self.layers[name].counts.update(counts)


def count_discards_as_projections(counts: dict[str, int]) -> dict[str, int]:
    return {**counts, "project": counts["project"] + counts["discard"], "discard": 0}


def _find_layers(model: nn.Module, layers: Iterable[Layer]) -> dict[str, Layer]:
    """Return the layers of the gate that are of Linear and Conv2d modules, by name."""
    weights = {module.weight for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    return {layer.name: layer for layer in layers if not weights.isdisjoint(layer.parameters)}


def split_into_examples(batches: Iterable[Batch]) -> Iterable[Batch]:
    """Yield the examples of batches, as batches of one."""
    for inputs, targets in batches:
        yield from zip(inputs.split(1), targets.split(1), strict=True)


def overlap(one: slice, other: slice) -> bool:
    return bool(one.start < other.stop and other.start < one.stop)


def per_layer(threshold: float | Sequence[float], names: list[str]) -> dict[str, float]:
    values = [threshold] * len(names) if isinstance(threshold, float) else list(threshold)
    if len(values) != len(names):
        raise ValueError(
            f"`threshold` must be one number or one for each of the layers {', '.join(names)}, got {len(values)}"
        )
    return dict(zip(names, values, strict=True))
