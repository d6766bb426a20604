"""The inputs of a layer as columns of a matrix, whose span contains the rows of its gradient.

The gradient of a Linear layer's [W | b] is a sum of outer products with its inputs [x; 1]; a convolution is the same
with the patches of its input. Frozen directions of that input space are what GPM remembers.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfao.optim._consolidation.gradients import eval_mode

InputLayer = nn.Linear | nn.Conv2d


def input_layers(model: nn.Module) -> dict[str, InputLayer]:
    """Return the Linear and Conv2d layers by name, in the order of the model."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    for name, module in found.items():
        if isinstance(module, nn.Conv2d) and (module.padding_mode != "zeros" or isinstance(module.padding, str)):
            raise ValueError(
                f"convolution {name!r} must be padded by given numbers of zeros, "
                f"got padding {module.padding!r} of {module.padding_mode!r}"
            )
    return found


def input_columns(layer: InputLayer, inputs: Tensor) -> Tensor:
    """Return the inputs, or patches, of a batch as columns, with a row of ones for the bias if there is one.

    The groups of a grouped convolution share the rows of its weight matrix, so their patches are columns alike.
    """
    if isinstance(layer, nn.Linear):
        columns = inputs.flatten(0, -2).T
    else:
        patches = functional.unfold(
            inputs,
            layer.kernel_size,
            dilation=layer.dilation,
            padding=layer.padding,  # type: ignore[arg-type]  # no string: `input_layers` refuses it
            stride=layer.stride,
        )
        grouped = patches.unflatten(1, (layer.groups, -1))
        columns = grouped.permute(2, 0, 1, 3).flatten(1)
    return columns if layer.bias is None else torch.cat([columns, columns.new_ones(1, columns.shape[1])])


def representations(model: nn.Module, layers: dict[str, InputLayer], batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return for each layer a matrix R whose R R' is that of all its inputs, in float64 and never wider than high.

    The model runs in eval mode, and no hook is left on it.
    """
    found: dict[str, Tensor] = {}

    def see(name: str, inputs: Tensor) -> None:
        columns = input_columns(layers[name], inputs).double()
        found[name] = condense(torch.cat([found[name], columns], dim=1) if name in found else columns)

    with eval_mode(model), torch.no_grad(), _watch(layers, see):
        for batch in batches:
            model(batch)
    return found


def condense(matrix: Tensor) -> Tensor:
    """Return a matrix with the same R R' and no more columns than rows, by QR: there are thousands of patches."""
    if matrix.shape[1] <= matrix.shape[0]:
        return matrix
    triangle: Tensor = torch.linalg.qr(matrix.T, mode="r").R
    return triangle.T


@contextmanager
def _watch(layers: dict[str, InputLayer], see: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Call `see` with the name and the inputs of every layer that runs."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda module, inputs: see(name, inputs[0])

    handles = [module.register_forward_pre_hook(hook(name)) for name, module in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
