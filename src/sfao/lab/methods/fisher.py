"""The diagonal of the empirical Fisher information: how strongly the loss of a task depends on every parameter.

It is measured in eval mode, with the labels of the data; `.grad` is not touched. `model` returns logits.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from sfao.batches import eval_mode
from sfao.lab.streams.labelled_images import Batch

#: Gradients and activations held at a time, in values (64 MB of floats), and examples: more save no time.
CHUNK_VALUES, MOST_EXAMPLES = 2**24, 512
#: {Linear layer that sees an example once, as one vector: the shape of its output for that example}
Linears = dict[nn.Linear, torch.Size]


def batch_fisher(model: nn.Module, batches: Iterable[Batch], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the mean over batches of the squared gradient of the batch's mean loss.

    Cheap with any model, but not the Fisher information: gradients of examples cancel before they are squared.
    """
    total, seen = [torch.zeros_like(parameter) for parameter in parameters], 0
    with eval_mode(model), torch.enable_grad():
        for inputs, targets in batches:
            loss = cross_entropy(model(inputs), targets)
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            for squares, gradient in zip(total, gradients, strict=True):
                if gradient is not None:
                    squares.addcmul_(gradient, gradient)
            seen += 1
    return [squares / seen for squares in total]


def exact_fisher(model: nn.Module, batches: Iterable[Batch], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the mean over examples of the squared gradient of the example's loss.

    The gradient of a Linear layer for one example is the outer product of its output's gradient d and its input a, so
    the squares sum to (d^2)^T a^2 over examples: one matrix product. Other gradients come from vmap over grad. A model
    that vmap can't run is run one example at a time.
    """
    examples = (example for batch in batches for example in zip(*(tensor.split(1) for tensor in batch), strict=True))
    first = next(examples)
    linears, values = _trace(model, first)
    every, room = chain([first], examples), min(max(1, CHUNK_VALUES // values), MOST_EXAMPLES)
    total, seen = {parameter: torch.zeros_like(parameter) for parameter in parameters}, 0
    while chunk := list(islice(every, room)):
        try:
            found = _square_together(model, linears, chunk)
        except RuntimeError:
            means = batch_fisher(model, chunk, parameters)
            found = {parameter: len(chunk) * mean for parameter, mean in zip(parameters, means, strict=True)}
        for parameter, squares in found.items():
            total[parameter] += squares
        seen += len(chunk)
    return [total[parameter] / seen for parameter in parameters]


def _trace(model: nn.Module, example: Batch) -> tuple[Linears, int]:
    """Return the Linear layers that see an example once, and the number of values that its gradients need."""
    values = sum(tensor.numel() for tensor in example)

    def count(tensor: Tensor) -> Tensor:
        nonlocal values
        values += 0 if isinstance(tensor, nn.Parameter) else tensor.numel()
        return tensor

    users = Counter(parameter for module in model.modules() for parameter in module.parameters(recurse=False))
    calls: dict[nn.Linear, list[torch.Size]] = {
        module: []
        for module in model.modules()
        # A subclass may do anything with its weight.
        if type(module) is nn.Linear and all(p.requires_grad and users[p] == 1 for p in module.parameters())
    }
    inputs, targets = example
    with (
        eval_mode(model),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor),
        _hooked(calls, lambda layer, _, output: calls[layer].append(output.shape)),
    ):
        cross_entropy(model(inputs), targets)
    linears = {layer: shapes[0] for layer, shapes in calls.items() if [shape[:-1] for shape in shapes] == [(1,)]}
    return linears, values + sum(parameter.numel() for parameter in _find_others(model, linears).values())


def _find_others(model: nn.Module, linears: Linears) -> dict[str, nn.Parameter]:
    """Return the trainable parameters that aren't those of `linears`."""
    covered = {parameter for layer in linears for parameter in layer.parameters()}
    return {name: p for name, p in model.named_parameters() if p.requires_grad and p not in covered}


@torch.no_grad()
def _square_together(model: nn.Module, linears: Linears, examples: Sequence[Batch]) -> dict[Tensor, Tensor]:
    """Return the squared gradients of examples, summed over them, by parameter."""
    count, others = len(examples), _find_others(model, linears)
    inputs, targets = (torch.stack(tensors) for tensors in zip(*examples, strict=True))

    def evaluate(
        values: dict[str, Tensor], taps: dict[nn.Linear, Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, dict[nn.Linear, Tensor]]:
        seen: dict[nn.Linear, Tensor] = {}

        def tap(layer: nn.Linear, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            seen[layer] = arguments[0]
            return output + taps[layer]

        with _hooked(linears, tap):
            loss = cross_entropy(functional_call(model, values, (x,)), y)
        return loss, seen

    differentiate = grad(evaluate, argnums=(0, 1), has_aux=True)
    values = {name: parameter.detach() for name, parameter in others.items()}
    taps = {layer: layer.weight.new_zeros(shape) for layer, shape in linears.items()}  # zeros to differentiate by
    with eval_mode(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # operations that vmap runs one after the other
        if count > 1:
            (full, deltas), seen = vmap(differentiate, in_dims=(None, None, 0, 0))(values, taps, inputs, targets)
        else:
            (full, deltas), seen = differentiate(values, taps, inputs[0], targets[0])
    squares: dict[Tensor, Tensor] = {
        parameter: full[name].reshape(count, *parameter.shape).square().sum(0) for name, parameter in others.items()
    }
    for layer in linears:
        delta = deltas[layer].reshape(count, -1).square()
        squares[layer.weight] = delta.T @ seen[layer].reshape(count, -1).square()
        if layer.bias is not None:
            squares[layer.bias] = delta.sum(0)
    return squares


@contextmanager
def _hooked(layers: Iterable[nn.Module], hook: Callable[[Any, tuple[Any, ...], Tensor], Any]) -> Iterator[None]:
    """Call the hook after every call of these layers."""
    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
