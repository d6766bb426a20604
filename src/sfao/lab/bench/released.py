"""Gating and projecting the way the paper's released code does, to compare with."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class ReleasedLoop(torch.optim.SGD):
    """One vector for the model, one direction at a time; every step projects."""

    def __init__(self, model: nn.Module, directions: int) -> None:
        super().__init__(model.parameters(), lr=1e-3)
        some = next(model.parameters())
        size = sum(parameter.numel() for parameter in model.parameters())
        generator = torch.Generator(some.device).manual_seed(0)
        drawn = (torch.randn(size, device=some.device, generator=generator) for _ in range(directions))
        self.directions = [direction / direction.norm() for direction in drawn]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        parameters = self.param_groups[0]["params"]
        gradient = torch.cat([parameter.grad.flatten() for parameter in parameters])
        largest = max(abs(float(gradient @ d / (gradient.norm() * d.norm()))) for d in self.directions)
        if largest <= 1:
            for direction in self.directions:
                gradient = gradient - (gradient @ direction) * direction
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, part in zip(parameters, gradient.split(sizes), strict=True):
            parameter.grad.copy_(part.view_as(parameter))
        super().step()

    @property
    def memory_bytes(self) -> int:
        return sum(direction.nbytes for direction in self.directions)
