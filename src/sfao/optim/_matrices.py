"""Tensors as matrices, in the order in which they lie in memory."""

import torch
from torch import Tensor


def count_channels_last(tensor: Tensor) -> int:
    """Return the number of channels of a tensor that lies in memory with them last, 0 of any other."""
    if tensor.ndim not in (4, 5) or tensor.is_contiguous() or not tensor.movedim(1, -1).is_contiguous():
        return 0
    return tensor.shape[1]


def in_memory_order(tensor: Tensor) -> Tensor:
    """Return the tensor with its channels last if it lies so in memory."""
    return tensor.movedim(1, -1) if count_channels_last(tensor) else tensor


def as_matrix(tensor: Tensor, rows: int) -> Tensor:
    """Return a matrix of so many rows, in float32 or float64; a view where strides and dtype allow."""
    matrix = in_memory_order(tensor).contiguous().view(rows, -1)
    return matrix.to(working_dtype(matrix))


def working_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which to work with a tensor."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
