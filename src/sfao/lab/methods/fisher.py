"""The diagonal of the empirical Fisher information: how strongly the loss of a task depends on every parameter.

It is measured in eval mode, with the labels of the data; `.grad` is not touched. `model` returns logits.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
#: Relative distance of vectorized squared gradients from those of a plain backward pass.
AGREEMENT = 1e-3


def batch_fisher(model: nn.Module, batches: Iterable[Batch], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the mean over batches of the squared gradient of the batch's mean loss.

    Cheap with any model, but not the Fisher information: gradients of examples cancel before they are squared.
    """
    total, seen = [torch.zeros_like(parameter) for parameter in parameters], 0
    for batch in batches:
        found = _differentiate(model, batch, parameters)
        for parameter, squares in zip(parameters, total, strict=True):
            if parameter in found:
                squares.addcmul_(found[parameter], found[parameter])
        seen += 1
    return [squares / seen for squares in total]


def exact_fisher(model: nn.Module, batches: Iterable[Batch], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the mean over examples of the squared gradient of the example's loss.

    The gradient of a Linear layer for one example is the outer product of its output's gradient d and its input a, so
    the squares sum to (d^2)^T a^2 over examples: one matrix product. Other gradients come from vmap over grad. A model
    that can't be vectorized, or comes out differently, is run one example at a time.
    """
    examples = (example for batch in batches for example in zip(*(tensor.split(1) for tensor in batch), strict=True))
    first = next(examples)
    plan, every = _make_plan(model, first, parameters), chain([first], examples)
    if not _agrees(plan, first):
        return batch_fisher(model, every, parameters)
    total, seen = {parameter: torch.zeros_like(parameter) for parameter in parameters}, 0
    while chunk := list(islice(every, plan.room)):
        for parameter, squares in _square_together(plan, chunk).items():
            total[parameter] += squares
        seen += len(chunk)
    return [total[parameter] / seen for parameter in parameters]


def _differentiate(model: nn.Module, batch: Batch, parameters: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """Return the gradients of the mean loss of a batch by parameter, of those that take part."""
    inputs, targets = batch
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    with eval_mode(model), torch.enable_grad():
        found = torch.autograd.grad(cross_entropy(model(inputs), targets), trainable, allow_unused=True)
    return {parameter: g for parameter, g in zip(trainable, found, strict=True) if g is not None}


@dataclass(frozen=True)
class _Plan:
    """How examples like a first one are differentiated together."""

    model: nn.Module
    #: The gradients for the first example, from a plain backward pass.
    plain: dict[Tensor, Tensor]
    #: Linear layers that see an example once, as one vector, with the shapes of their outputs.
    linears: dict[nn.Linear, torch.Size]
    #: All other parameters that have a gradient, by name.
    others: dict[str, nn.Parameter]
    #: The number of examples in a chunk.
    room: int


def _make_plan(model: nn.Module, example: Batch, parameters: Sequence[Tensor]) -> _Plan:
    held = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal held
        held += 0 if isinstance(tensor, nn.Parameter) else tensor.numel()
        return tensor

    users = Counter(parameter for module in model.modules() for parameter in module.parameters(recurse=False))
    calls: dict[nn.Linear, list[torch.Size]] = {
        module: []
        for module in model.modules()
        # A subclass may do anything with its weight.
        if type(module) is nn.Linear and all(users[parameter] == 1 for parameter in module.parameters())
    }
    saving = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with _hooked(calls, lambda layer, _, output: calls[layer].append(output.shape)), saving:
        plain = _differentiate(model, example, parameters)
    linears = {
        layer: shapes[0]
        for layer, shapes in calls.items()
        if [shape[:-1] for shape in shapes] == [(1,)] and all(parameter in plain for parameter in layer.parameters())
    }
    covered = {parameter for layer in linears for parameter in layer.parameters()}
    others = {name: p for name, p in model.named_parameters() if p in plain and p not in covered}
    values = held + sum(tensor.numel() for tensor in (*example, *others.values()))
    return _Plan(model, plain, linears, others, min(max(1, CHUNK_VALUES // values), MOST_EXAMPLES))


def _agrees(plan: _Plan, example: Batch) -> bool:
    """Return True if the first example's squared gradients come out as those of a plain backward pass."""
    copies = min(2, plan.room)
    try:
        found = _square_together(plan, [example] * copies)
    except Exception:
        return False  # run one by one, the data or the model will say what is wrong in their own words
    plain = {parameter: copies * gradient.square() for parameter, gradient in plan.plain.items()}
    sizes = torch.stack([squares.double().norm() for squares in plain.values()])
    gaps = torch.stack([(found[parameter] - squares).double().norm() for parameter, squares in plain.items()])
    # A parameter whose gradient is nothing but rounding need not agree.
    return bool((gaps <= AGREEMENT * (sizes + AGREEMENT * sizes.norm())).all())


@torch.no_grad()
def _square_together(plan: _Plan, examples: Sequence[Batch]) -> dict[Tensor, Tensor]:
    """Return the squared gradients of examples, summed over them, by parameter."""
    inputs, targets = (torch.stack(tensors) for tensors in zip(*examples, strict=True))

    def evaluate(values: dict[str, Tensor], taps: list[Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        with _tapped(plan.linears, taps) as seen:
            loss = cross_entropy(functional_call(plan.model, values, (x,)), y)
        return loss, [seen[layer] for layer in plan.linears]

    gradients = grad(evaluate, argnums=(0, 1), has_aux=True)
    values = {name: parameter.detach() for name, parameter in plan.others.items()}
    taps = [layer.weight.new_zeros(shape) for layer, shape in plan.linears.items()]
    with eval_mode(plan.model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # operations that vmap runs one after the other
        if len(examples) > 1:
            (full, deltas), seen = vmap(gradients, in_dims=(None, None, 0, 0))(values, taps, inputs, targets)
        else:
            (full, deltas), seen = gradients(values, taps, inputs[0], targets[0])
    count = len(examples)
    squares: dict[Tensor, Tensor] = {
        p: full[name].reshape(count, *p.shape).square().sum(0) for name, p in plan.others.items()
    }
    for layer, delta, vectors in zip(plan.linears, deltas, seen, strict=True):
        delta = delta.reshape(count, -1).square()
        squares[layer.weight] = delta.T @ vectors.reshape(count, -1).square()
        if layer.bias is not None:
            squares[layer.bias] = delta.sum(0)
    return squares


@contextmanager
def _tapped(layers: Iterable[nn.Linear], taps: Sequence[Tensor]) -> Iterator[dict[nn.Module, Tensor]]:
    """Add zeros to the outputs of these layers, to differentiate by, and yield their inputs."""
    seen: dict[nn.Module, Tensor] = {}
    by_layer = dict(zip(layers, taps, strict=True))

    def add(layer: Any, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        seen[layer] = arguments[0]
        return output + by_layer[layer]

    with _hooked(by_layer, add):
        yield seen


@contextmanager
def _hooked(layers: Iterable[nn.Module], hook: Callable[[Any, tuple[Any, ...], Tensor], Any]) -> Iterator[None]:
    """Call the hook after every call of these layers."""
    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
