"""Second moments of the inputs of Linear and Conv2d layers on examples of a task, and their principal axes."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, unfold

from sfao.batches import eval_mode
from sfao.lab.streams.labelled_images import Batch

#: Examples that go through the model together.
BATCH = 64
#: Second moments smaller than this, relative to the largest, are rounding of products in float64.
SMALLEST_MOMENT = 1e-13

InputLayer = nn.Linear | nn.Conv2d


class InputMoments:
    """The mean of x x' over examples, for the inputs x of one layer. With a bias, one more input is always 1.

    Args:
        width: the number of inputs, the one of the bias included.
        has_bias: append the input that is always 1.
        examples: the number of examples.
    """

    def __init__(self, width: int, has_bias: bool, examples: int) -> None:
        self._width, self._has_bias, self._examples = width, has_bias, examples
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

    @property
    def is_finite(self) -> bool:
        held = self._rows if self._moment is None else [self._moment]
        return all(bool(torch.isfinite(tensor).all()) for tensor in held)

    def find_axes(self) -> tuple[Tensor, Tensor]:
        """Return the moments along the principal axes, the largest first, and the axes as rows."""
        if self._moment is not None:
            values, vectors = torch.linalg.eigh(self._moment)
            is_there = values > SMALLEST_MOMENT * values[-1]
            return values[is_there].flip(0), vectors[:, is_there].flip(1).T
        rows = torch.cat(self._rows)
        # R R' has the same eigenvalues as R' R and is the smaller of the two.
        values, vectors = torch.linalg.eigh(rows @ rows.T)
        is_there = values > SMALLEST_MOMENT * values[-1]
        values, vectors = values[is_there].flip(0), vectors[:, is_there].flip(1)
        return values, (vectors / values.sqrt()).T @ rows


def find_input_layers(model: nn.Module) -> dict[str, InputLayer]:
    """Return the Linear and Conv2d layers with trainable weights, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d) and module.weight.requires_grad
    }


def collect_inputs(
    model: nn.Module, layers: Mapping[str, InputLayer], batches: Iterable[Batch], examples: int
) -> dict[str, InputMoments]:
    """Return the moments of the inputs of layers over the first `examples` examples, in eval mode.

    Layers that the model doesn't call are left out. A ValueError names a layer whose inputs aren't finite.
    """
    images = _take(batches, examples)
    found: dict[str, InputMoments] = {}

    def record(name: str, layer: InputLayer, inputs: Tensor) -> None:
        rows = input_rows(layer, inputs)
        if name not in found:
            has_bias = layer.bias is not None
            found[name] = InputMoments(rows.shape[1] + has_bias, has_bias, len(images))
        found[name].add(rows)

    def make_hook(name: str) -> Any:
        return lambda layer, arguments: record(name, layer, arguments[0])

    handles = [layer.register_forward_pre_hook(make_hook(name)) for name, layer in layers.items()]
    try:
        with eval_mode(model), torch.no_grad():
            for some in images.split(BATCH):
                model(some)
    finally:
        for handle in handles:
            handle.remove()
    for name, moments in found.items():
        if not moments.is_finite:
            raise ValueError(f"the inputs of layer {name!r} must be finite, but were not")
    return found


def _take(batches: Iterable[Batch], examples: int) -> Tensor:
    """Return the inputs of the first examples."""
    taken, count = [], 0
    for inputs, _ in batches:
        taken.append(inputs[: examples - count])
        count += len(taken[-1])
        if count == examples:
            break
    return torch.cat(taken)


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
