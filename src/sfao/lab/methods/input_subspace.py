"""The common part of GPM, SGP and TRGP: the input spaces of Linear and Conv2d layers on examples of past tasks.

The weights of a layer are one matrix, a row per output, with the bias as the weight of one more input that is always 1.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad, unfold

from sfao.batches import eval_mode
from sfao.lab.methods.method import Method, MethodOptions, Training, first_examples
from sfao.lab.streams.labelled_images import Batch
from sfao.lab.streams.stream import Task

#: Examples that go through the model together.
BATCH = 64
#: Second moments smaller than this, relative to the largest, are rounding of products in float64.
SMALLEST_MOMENT = 1e-13
#: Singular values smaller than this, relative to the largest, are rounding of float32 inputs.
SMALLEST_SINGULAR_VALUE = 1e-6

InputLayer = nn.Linear | nn.Conv2d
Fraction = Annotated[float, Field(gt=0, le=1)]


class SubspaceOptions(MethodOptions):
    threshold: Fraction | tuple[Fraction, ...] = Field(
        0.97,
        description="Share of the inputs' energy to keep, one for all layers or a list with one per layer; 0.95, then "
        "0.99 in the GPM authors' Permuted MNIST, 0.97 in their Split CIFAR-100.",
    )
    threshold_increase: float = Field(
        0.0, ge=0, description="Added to the threshold per past task; 0.003 in the GPM authors' Split CIFAR-100."
    )
    examples: int = Field(
        300, ge=1, description="Training examples whose inputs are collected; 300 in the GPM authors' Permuted MNIST."
    )


class SubspaceMethod(Method):
    """Projects the gradient of each layer by what it stored of the layer's past inputs.

    The last layer is free where every task has its own outputs: the rows of other tasks get no gradient. Parameters of
    other layers (BatchNorm's) are frozen after the first task, as in the GPM authors' code, though running statistics
    go on.
    """

    options: SubspaceOptions
    saved: ClassVar[tuple[str, ...]] = ("bases", "past_outputs")

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.layers: dict[str, InputLayer] = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, InputLayer) and module.weight.requires_grad
        }
        self.thresholds = per_layer(self.options.threshold, list(self.layers))
        held = {parameter for layer in self.layers.values() for parameter in layer.parameters()}
        self.others = [parameter for parameter in model.parameters() if parameter not in held]
        #: Orthonormal directions of past inputs, as columns, by layer.
        self.bases: dict[str, Tensor] = {}
        #: First output and last + 1 of each past task.
        self.past_outputs: list[tuple[int, int]] = []

    def project(self, name: str, rows: Tensor) -> Tensor:
        """Return what the step may use of a layer's gradient."""
        raise NotImplementedError

    def store(self, name: str, basis: Tensor, inputs: Tensor, threshold: float) -> None:
        """Replace the basis of a layer by one that covers these inputs (columns) too."""
        raise NotImplementedError

    def update(self, outputs: slice) -> None:
        free = self.find_free_layer(outputs)
        for name in self.bases:
            gradient = read_gradient(self.layers[name])
            if gradient is not None and name != free:
                write_gradient(self.layers[name], self.project(name, gradient))
        if self.past_outputs:
            for parameter in self.others:
                parameter.grad = None
        super().update(outputs)

    def find_free_layer(self, outputs: slice) -> str | None:
        """Return the name of the last layer if no past task has used these outputs."""
        is_used = any(outputs.start < end and first < outputs.stop for first, end in self.past_outputs)
        return None if is_used else list(self.layers)[-1]

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        with self.model_for_task(number):
            found = collect_inputs(self.model, self.layers, self.batches(task, generator), self.options.examples)
        for name, moments in found.items():
            values, axes = moments.find_axes()
            basis = self.bases.get(name, axes.new_empty(axes.shape[1], 0)).to(axes)
            threshold = min(1.0, self.thresholds[name] + number * self.options.threshold_increase)
            self.store(name, basis, axes.T * values.sqrt(), threshold)
        self.past_outputs.append((task.outputs.start, task.outputs.stop))

    @property
    def memory_bytes(self) -> int:
        return sum(basis.nbytes for basis in self.bases.values())

    def concerns(self) -> list[str]:
        return [
            f"{self.name}: the basis of layer {name!r} spans all of its {len(basis)} inputs"
            for name, basis in self.bases.items()
            if basis.shape[1] == len(basis)
        ]


def per_layer(threshold: float | Sequence[float], names: list[str]) -> dict[str, float]:
    values = [threshold] * len(names) if isinstance(threshold, float) else list(threshold)
    if len(values) != len(names):
        raise ValueError(
            f"`threshold` must be one number or one for each of the layers {', '.join(names)}, got {len(values)}"
        )
    return dict(zip(names, values, strict=True))


# -- The weights of a layer as a matrix ----------------------------------------------------------------------


def read_rows(layer: InputLayer) -> Tensor:
    """Return a copy of the weights, one row per output."""
    return _join(layer.weight.detach(), None if layer.bias is None else layer.bias.detach())


@torch.no_grad()
def write_rows(layer: InputLayer, rows: Tensor) -> None:
    _split(layer.weight, layer.bias, rows)


def read_gradient(layer: InputLayer) -> Tensor | None:
    """Return a copy of the gradient in the same form; None without one. A bias that has none counts as zero."""
    weight, bias = layer.weight, layer.bias
    if weight.grad is None or bias is None:
        return None if weight.grad is None else _join(weight.grad, None)
    return _join(weight.grad, torch.zeros_like(bias) if bias.grad is None else bias.grad)


def write_gradient(layer: InputLayer, rows: Tensor) -> None:
    """Replace the gradient of a layer that has one."""
    assert layer.weight.grad is not None
    _split(layer.weight.grad, None if layer.bias is None else layer.bias.grad, rows)


def _join(weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = weight.flatten(1)
    return rows.clone() if bias is None else torch.cat([rows, bias[:, None]], 1)


def _split(weight: Tensor, bias: Tensor | None, rows: Tensor) -> None:
    width = weight[0].numel()
    weight.copy_(rows[:, :width].view_as(weight))
    if bias is not None:
        bias.copy_(rows[:, width])


# -- Second moments of inputs --------------------------------------------------------------------------------


class InputMoments:
    """The mean of x x' over examples, for the inputs x of one layer. With a bias, one more input is always 1."""

    def __init__(self, width: int, has_bias: bool, examples: int) -> None:
        self._width, self._has_bias, self._examples = width + has_bias, has_bias, examples
        self._moment: Tensor | None = None
        self._rows: list[Tensor] = []

    def add(self, inputs: Tensor) -> None:
        """Add inputs, one per row."""
        rows = inputs if inputs.device.type == "mps" else inputs.double()  # MPS has no float64
        if self._has_bias:
            rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
        self._rows.append(rows * float((1 / self._examples) ** 0.5))
        # The inputs themselves while they are fewer than their entries, then the smaller matrix of their moments.
        if self._moment is not None or sum(map(len, self._rows)) > self._width:
            for rows in self._rows:
                product = rows.T @ rows
                self._moment = product if self._moment is None else self._moment + product
            self._rows = []

    def find_axes(self) -> tuple[Tensor, Tensor]:
        """Return the moments along the principal axes, the largest first, and the axes as rows."""
        # R R' has the same eigenvalues as R' R and is the smaller of the two.
        rows = None if self._moment is not None else torch.cat(self._rows)
        values, vectors = torch.linalg.eigh(self._moment if rows is None else rows @ rows.T)
        is_there = values > SMALLEST_MOMENT * values[-1]
        values, vectors = values[is_there].flip(0), vectors[:, is_there].flip(1)
        return values, vectors.T if rows is None else (vectors / values.sqrt()).T @ rows


def collect_inputs(
    model: nn.Module, layers: dict[str, InputLayer], batches: Iterable[Batch], examples: int
) -> dict[str, InputMoments]:
    """Return the moments of the inputs of layers over the first `examples` examples, in eval mode.

    Layers that the model doesn't call are left out.
    """
    images, found = torch.cat([inputs for inputs, _ in first_examples(batches, examples)]), dict[str, InputMoments]()

    def make_hook(name: str) -> Any:
        def record(layer: InputLayer, arguments: tuple[Tensor, ...]) -> None:
            rows = input_rows(layer, arguments[0])
            if name not in found:
                found[name] = InputMoments(rows.shape[1], layer.bias is not None, len(images))
            found[name].add(rows)

        return record

    handles = [layer.register_forward_pre_hook(make_hook(name)) for name, layer in layers.items()]
    try:
        with eval_mode(model), torch.no_grad():
            for some in images.split(BATCH):
                model(some)
    finally:
        for handle in handles:
            handle.remove()
    return found


def input_rows(layer: InputLayer, inputs: Tensor) -> Tensor:
    """Return the inputs that the weights of a layer are applied to, one per row: vectors, or patches of images."""
    if isinstance(layer, nn.Linear):
        return inputs.reshape(-1, layer.in_features)
    images = inputs if inputs.ndim == 4 else inputs[None]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    # Columns first, as torch.nn.functional.pad expects them; torch names this attribute with an underscore.
    images = pad(images, list(layer._reversed_padding_repeated_twice), mode=mode)
    kernel, dilation, stride = (tuple(getattr(layer, name)) for name in ("kernel_size", "dilation", "stride"))
    patches = unfold(images, kernel, dilation=dilation, stride=stride)  # (image, channels x offsets, position)
    width = layer.weight[0].numel()
    rows: Tensor = patches.unflatten(1, (layer.groups, width)).movedim(3, 1).reshape(-1, width)
    return rows
