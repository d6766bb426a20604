"""The diagonal of the empirical Fisher information: how sharply the loss of a task answers to every parameter.

All of it is measured in eval mode, with the labels of the data; `.grad` is not touched. `model` returns logits.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, unfold

from sfao.optim.consolidation import Batch, eval_mode, harvest
from sfao.optim.hooks import hooked

PlainLayer = nn.Linear | nn.Conv2d

#: Gradients of single examples held at a time, in values (64 MB of floats).
CHUNK_VALUES = 2**24


def batch_fisher(model: nn.Module, batches: Iterable[Batch], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Mean over batches of the squared gradient of the batch's mean loss.

    Cheap with any model, but no Fisher information: gradients of examples cancel before they are squared.
    """
    total, seen = [torch.zeros_like(parameter) for parameter in parameters], 0
    for gradients in harvest(model, batches, cross_entropy, parameters):
        for sum_, gradient in zip(total, gradients, strict=True):
            if gradient is not None:
                sum_.addcmul_(gradient, gradient)
        seen += 1
    return [sum_ / seen for sum_ in total]


def exact_fisher(model: nn.Module, batches: Iterable[Batch], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Mean over examples of the squared gradient of the example's loss.

    The gradient of a Linear layer for one example is the outer product of its output's gradient d and its input
    a, so the squares sum to (d^2)^T a^2 over a batch: one matrix product, no gradient of an example is ever
    formed. A convolution's is d times its unfolded input, a batch of matrix products. All other layers go
    through torch.func, vmap over grad.
    """
    total = {parameter: torch.zeros_like(parameter) for parameter in parameters}
    seen, layers = 0, None
    with eval_mode(model), torch.enable_grad():
        for inputs, targets in batches:
            layers = plain_layers(model, inputs) if layers is None else layers
            _add_plain_squares(total, model, layers, inputs, targets)
            covered = {parameter for layer in layers for parameter in layer.parameters()}
            others: dict[str, Tensor] = {
                name: parameter
                for name, parameter in model.named_parameters()
                if parameter in total and parameter.requires_grad and parameter not in covered
            }
            if others:
                _add_other_squares(total, model, others, inputs, targets)
            seen += len(inputs)
    return [total[parameter] / seen for parameter in parameters]


def plain_layers(model: nn.Module, inputs: Tensor) -> list[PlainLayer]:
    """The Linear and Conv2d layers that see each example once, as one vector or image, with parameters of their own."""
    users: dict[Tensor, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[parameter] = users.get(parameter, 0) + 1
    candidates = [
        module
        for module in model.modules()
        if _is_plain(module)
        and all(parameter.requires_grad and users[parameter] == 1 for parameter in module.parameters())
    ]
    with _calls(candidates) as calls, torch.no_grad():
        model(inputs[:1])
    return [
        layer
        for layer in candidates
        if len(calls[layer]) == 1 and calls[layer][0][0].ndim == (2 if isinstance(layer, nn.Linear) else 4)
    ]


def _is_plain(module: nn.Module) -> TypeGuard[PlainLayer]:
    # A subclass may do anything with its weight.
    if type(module) is nn.Conv2d:
        return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return type(module) is nn.Linear


def _add_plain_squares(
    total: dict[Tensor, Tensor], model: nn.Module, layers: Sequence[PlainLayer], inputs: Tensor, targets: Tensor
) -> None:
    """Add the squared gradients of these layers, summed over the batch."""
    if not layers:
        return
    with _calls(layers) as calls:
        # Summed, so that the gradient of an output row is that of its own example's loss.
        loss = cross_entropy(model(inputs), targets, reduction="sum")
    seen = [calls[layer][0] for layer in layers]
    deltas = torch.autograd.grad(loss, [output for _, output in seen], materialize_grads=True)
    for layer, (activations, _), delta in zip(layers, seen, deltas, strict=True):
        if layer.weight in total:
            total[layer.weight].add_(_weight_squares(layer, activations, delta))
        if layer.bias is not None and layer.bias in total:
            total[layer.bias].add_(delta.flatten(2).sum(2).square().sum(0) if delta.ndim > 2 else delta.square().sum(0))


def _weight_squares(layer: PlainLayer, activations: Tensor, delta: Tensor) -> Tensor:
    if isinstance(layer, nn.Linear):
        return delta.square().T @ activations.square()
    squares = torch.zeros_like(layer.weight).flatten(1)
    rows, columns, positions = *squares.shape, delta[0, 0].numel()
    size = max(1, CHUNK_VALUES // (columns * max(rows, positions)))
    padding = cast("tuple[int, int]", layer.padding)  # not a name: such a layer is not plain
    for some, its_delta in zip(torch.split(activations, size), torch.split(delta, size), strict=True):
        patches = unfold(some, layer.kernel_size, layer.dilation, padding, layer.stride)
        squares += torch.bmm(its_delta.flatten(2), patches.mT).square_().sum(0)
    return squares.view_as(layer.weight)


def _add_other_squares(
    total: dict[Tensor, Tensor], model: nn.Module, others: dict[str, Tensor], inputs: Tensor, targets: Tensor
) -> None:
    def loss(values: dict[str, Tensor], image: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, values, (image[None],)), target[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    values = {name: parameter.detach() for name, parameter in others.items()}
    size = max(1, CHUNK_VALUES // sum(parameter.numel() for parameter in others.values()))
    for some, labels in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
        with torch.no_grad():  # for the parameters that are not among the others
            gradients = per_example(values, some, labels)
        for name, parameter in others.items():
            total[parameter].add_(gradients[name].square().sum(0))


@contextmanager
def _calls(layers: Sequence[PlainLayer]) -> Iterator[dict[nn.Module, list[tuple[Tensor, Tensor]]]]:
    """The (input, output) pairs of every call of these layers."""
    calls: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {layer: [] for layer in layers}

    def record(layer: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        calls[layer].append((arguments[0].detach(), output))
        # The model goes on with a copy: an activation that works in place must not change what is recorded.
        return output.clone()

    with hooked(layers, record):
        yield calls
