"""The gradient of a whole model as one vector."""

from collections.abc import Sequence

import torch
from torch import Tensor


def flat(gradients: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> Tensor:
    """One vector of all gradients; zero where a parameter has none."""
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


def flat_gradient_of(value: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The gradient of a scalar; `.grad` is not touched."""
    return flat(torch.autograd.grad(value, parameters, allow_unused=True), parameters)


def overwrite_gradients(parameters: Sequence[Tensor], vector: Tensor) -> None:
    """Put a vector where backward() left gradients; a parameter without one stays without."""
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        if parameter.grad is not None:
            parameter.grad.copy_(part.view_as(parameter))
