"""The addresses of the gradients: a table on the device that all kernels read."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfao.gating._device import entry_kernels

#: Addresses that one launch of `entry_kernels.point` takes.
AT_ONCE = 8


class Addresses:
    """Kept up to date by kernels alone: copies from the host could not be captured in a graph."""

    def __init__(self, gradients: Sequence[Tensor]) -> None:
        self.table = torch.zeros(len(gradients), dtype=torch.int64, device=gradients[0].device)
        self.point_at([gradient.data_ptr() for gradient in gradients])

    def point_at(self, addresses: Sequence[int]) -> None:
        """Let the gradients be at these addresses from now on."""
        for first in range(0, len(addresses), AT_ONCE):
            some = list(addresses[first : first + AT_ONCE])
            some += some[-1:] * (AT_ONCE - len(some))
            entry_kernels.point[(1,)](self.table, first, len(addresses), *some, num_warps=1)
