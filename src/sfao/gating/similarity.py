"""Cosines between a gradient and a sample of the remembered directions."""

import torch
from torch import Tensor


def draw(count: int, samples: int, generator: torch.Generator) -> Tensor | None:
    """`samples` of `count` indices, uniform, without replacement; None stands for all of them."""
    if samples >= count:
        return None
    return torch.randperm(count, generator=generator)[:samples]


def cosines(dots: Tensor, norms: Tensor, norm: float) -> Tensor:
    """Cosines from inner products, norms of the directions and norm of the gradient.

    A direction of norm 0 (all of it lies in parameters that are frozen now) constrains nothing: cosine 0.
    """
    lengths = norms * norm
    return torch.where(lengths > 0, dots / lengths, 0.0).clamp(-1.0, 1.0)


def extremes(cosines: Tensor, kind: str) -> tuple[float, float]:
    """The largest cosine, signed or absolute, and the smallest signed one."""
    smallest, largest = torch.aminmax(cosines)
    if kind == "absolute":
        largest = torch.maximum(largest, -smallest)
    return float(largest), float(smallest)
