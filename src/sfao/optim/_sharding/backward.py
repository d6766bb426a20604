"""Gradients of a model that ranks hold in shards."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from sfao.optim._sharding.shards import make_whole, reshard


def take_by_backward(
    model: nn.Module, evaluate: Callable[[], Tensor], parameters: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the whole gradients of a value by parameters that ranks hold in shards; `.grad` stays as it is.

    The graph of such a model holds other tensors than its parameters, which get their gradients by backward().
    """
    reshard(model)
    everything = list({*model.parameters(), *parameters})
    held = [parameter.grad for parameter in everything]
    for parameter in everything:
        parameter.grad = None
    try:
        evaluate().backward()
        found = [parameter.grad for parameter in parameters]
    finally:
        reshard(model)
        for parameter, gradient in zip(everything, held, strict=True):
            parameter.grad = gradient
    return [None if gradient is None else make_whole(gradient) for gradient in found]
