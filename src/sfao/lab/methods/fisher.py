"""The diagonal of the empirical Fisher information: how sharply the loss of a task answers to every parameter.

All of it is measured in eval mode, with the labels of the data; `.grad` is not touched. `model` returns logits.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.lab.methods.example_gradients import GradientTaker, UnitGradients, take_gradients
from sfao.lab.streams.labelled_images import Batch

#: Examples taken at once at most: more save no time.
MOST_EXAMPLES = 512


def batch_fisher(model: nn.Module, batches: Iterable[Batch], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the mean over batches of the squared gradient of the batch's mean loss.

    Cheap with any model, but no Fisher information: gradients of examples cancel before they are squared.
    """
    total, seen = [torch.zeros_like(parameter) for parameter in parameters], 0
    for gradients in take_gradients(model, batches, cross_entropy, parameters):
        for sum_, gradient in zip(total, gradients, strict=True):
            if gradient is not None:
                sum_.addcmul_(gradient, gradient)
        seen += 1
    return [sum_ / seen for sum_ in total]


def exact_fisher(model: nn.Module, batches: Iterable[Batch], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the mean over examples of the squared gradient of the example's loss.

    The gradient of a Linear layer for one example is the outer product of its output's gradient d and its input
    a, so the squares sum to (d^2)^T a^2 over a batch: one matrix product, no gradient of an example is ever formed.
    """
    total = {parameter: torch.zeros_like(parameter) for parameter in parameters}
    linears = [module for module in model.modules() if type(module) is nn.Linear]
    biases: dict[Tensor, Tensor | None] = {layer.weight: layer.bias for layer in linears}
    taker = GradientTaker(model, cross_entropy, parameters, biases)
    seen = 0
    for examples in _gather(batches, taker):
        for found in taker.take(examples):
            _add_squares(total, found, biases)
        seen += len(examples)
    return [total[parameter] / seen for parameter in parameters]


def _gather(batches: Iterable[Batch], taker: GradientTaker) -> Iterator[list[Batch]]:
    """Yield the examples as batches of one, of several batches where more can be taken at once."""
    examples: list[Batch] = []
    for inputs, targets in batches:
        examples += zip(inputs.split(1), targets.split(1), strict=True)
        room = min(taker.find_room(examples[0]), MOST_EXAMPLES)
        while len(examples) >= room:
            yield examples[:room]
            examples = examples[room:]
    if examples:
        yield examples


@torch.no_grad()
def _add_squares(total: dict[Tensor, Tensor], found: UnitGradients, biases: dict[Tensor, Tensor | None]) -> None:
    """Add the squared gradients of some examples, summed over them."""
    for parameter, gradients in found.full.items():
        total[parameter].add_(gradients.square().sum(0))
    for weight, (deltas, inputs) in found.outer.items():
        bias = biases[weight]
        if deltas.shape[1] == 1:
            total[weight].add_(deltas[:, 0].square().T @ inputs[:, 0].square())
        else:  # the layer saw several vectors of each example, whose outer products add up before they are squared
            total[weight].add_((deltas.mT @ inputs).square().sum(0))
        if bias is not None:
            total[bias].add_(deltas.sum(1).square().sum(0))
