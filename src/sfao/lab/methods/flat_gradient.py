"""The gradient of a whole model as one vector."""

from collections.abc import Sequence

import torch
from torch import Tensor


def flatten_gradients(gradients: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> Tensor:
    """Return one vector of all gradients, zero where a parameter has none."""
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


def flat_gradient_of(value: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the gradient of a scalar as one vector; `.grad` is not touched."""
    return flatten_gradients(torch.autograd.grad(value, parameters, allow_unused=True), parameters)


def overwrite_gradients(parameters: Sequence[Tensor], vector: Tensor) -> None:
    """Replace the gradients by the parts of a vector; a parameter without gradient stays without."""
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        if parameter.grad is not None:
            parameter.grad.copy_(part.view_as(parameter))
