"""Small layers side by side, their inputs, and their parameters as matrices."""

from typing import Any

import torch
from torch import Tensor, nn

LAYERS = [
    lambda: nn.Linear(6, 4),
    lambda: nn.Linear(5, 3, bias=False),
    lambda: nn.Linear(1, 1),
    lambda: nn.Linear(3, 9),
    lambda: nn.Linear(1, 5, bias=False),
    lambda: nn.Conv2d(2, 3, 2),
    lambda: nn.Conv2d(4, 4, 2, groups=2, bias=False),
    lambda: nn.Conv1d(3, 2, 3, padding=1, stride=2),
]
INPUTS = {
    "random": lambda noise, before: noise,
    "again": lambda noise, before: before,
    "nearly again": lambda noise, before: before + 1e-3 * noise,
    "low rank": lambda noise, before: noise[:1] * noise.flatten(1)[:, :1].view(-1, *[1] * (noise.ndim - 1)),
    "long": lambda noise, before: 1e4 * noise,
    "short": lambda noise, before: 1e-4 * noise,
    "zero": lambda noise, before: 0 * noise,
    "equal entries": lambda noise, before: torch.ones_like(noise),
    "positive": lambda noise, before: noise.clamp_min(0),
}


class SideBySide(nn.Module):
    """Layers that each have an input of their own, `x0` the first of them."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, **inputs: Tensor) -> list[Tensor]:
        return [layer(inputs[f"x{number}"]) for number, layer in enumerate(self.layers)]


def unfold(layer: Any, inputs: Tensor) -> Tensor:
    """Return every input [x; 1] that a layer's weight is applied to, one per row, in float64."""
    x = inputs.double()
    if isinstance(layer, nn.Conv1d):
        x = nn.functional.pad(x, (layer.padding[0],) * 2).unfold(2, layer.kernel_size[0], layer.stride[0])
        rows = x.transpose(1, 2).flatten(2).flatten(0, 1)
    elif isinstance(layer, nn.Conv2d):
        patches = nn.functional.unfold(x, layer.kernel_size)
        rows = patches.transpose(1, 2).reshape(-1, layer.weight[0].numel())
    else:
        rows = x
    return rows if layer.bias is None else torch.cat([rows, rows.new_ones(len(rows), 1)], 1)


def read_matrix(layer: Any, of: str = "data") -> Tensor:
    """Return a layer's parameters, or their gradients, as the matrix [W | b]."""
    return torch.cat([getattr(p, of).reshape(len(layer.weight), -1) for p in layer.parameters()], 1).clone()


def write_gradient(layer: Any, gradient: Tensor) -> None:
    start = 0
    for parameter in layer.parameters():
        columns = parameter.numel() // len(layer.weight)
        parameter.grad = gradient[:, start : start + columns].reshape(parameter.shape).to(parameter.dtype)
        start += columns
