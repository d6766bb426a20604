"""Cosines between a gradient and a sample of the remembered directions."""

import torch
from torch import Tensor


def draw(count: int, samples: int, generator: torch.Generator) -> Tensor | slice:
    """An index of `samples` of `count` directions, uniform, without replacement; a slice when that is all."""
    if samples >= count:
        return slice(None)
    return torch.randperm(count, generator=generator)[:samples]


def extreme_cosines(dots: Tensor, inverse_norms: Tensor, norm: float, kind: str) -> tuple[float, float]:
    """The largest cosine, signed or absolute, and the smallest signed one.

    From inner products of a gradient of this norm with directions of these norms. Rounding can push the
    quotient past 1, where no threshold may see it. With no direction at all, everything agrees.
    """
    if len(dots) == 0:
        return 1.0, 1.0
    least, most = torch.aminmax(dots * inverse_norms)
    smallest = min(max(float(least) / norm, -1.0), 1.0)
    largest = min(max(float(most) / norm, -1.0), 1.0)
    return (max(largest, -smallest) if kind == "absolute" else largest), smallest
