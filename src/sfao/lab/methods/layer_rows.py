"""The weights of a layer as one matrix, with the bias as the weight of one more input that is always 1."""

import torch
from torch import Tensor, nn


def read_rows(layer: nn.Linear | nn.Conv2d) -> Tensor:
    """Return a copy of the weights, one row per output."""
    return _join(layer.weight.detach(), None if layer.bias is None else layer.bias.detach())


def read_gradient_rows(layer: nn.Linear | nn.Conv2d) -> Tensor | None:
    """Return a copy of the gradient in the same form; None without one. A bias that has none counts as zero."""
    if layer.weight.grad is None:
        return None
    bias = layer.bias
    if bias is None:
        return _join(layer.weight.grad, None)
    return _join(layer.weight.grad, torch.zeros_like(bias) if bias.grad is None else bias.grad)


@torch.no_grad()
def write_rows(layer: nn.Linear | nn.Conv2d, rows: Tensor) -> None:
    """Give the layer these weights."""
    _split(layer.weight, layer.bias, rows)


def write_gradient_rows(layer: nn.Linear | nn.Conv2d, rows: Tensor) -> None:
    """Replace the gradient of the layer, as far as it has one."""
    if layer.weight.grad is not None:
        _split(layer.weight.grad, None if layer.bias is None else layer.bias.grad, rows)


def _join(weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = weight.flatten(1)
    return rows.clone() if bias is None else torch.cat([rows, bias[:, None]], 1)


def _split(weight: Tensor, bias: Tensor | None, rows: Tensor) -> None:
    width = weight[0].numel()
    weight.copy_(rows[:, :width].view_as(weight))
    if bias is not None:
        bias.copy_(rows[:, width])
