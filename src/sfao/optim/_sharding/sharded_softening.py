"""Softening where ranks hold the rows of layers: what each measures of its rows is summed over all of them."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from sfao.optim._sharding.gathering import Gathering
from sfao.optim._sharding.rows import TakenRows, give_back, take_rows
from sfao.optim._sharding.shards import Shards
from sfao.optim._softening import Measured, Softening
from sfao.optim.layers import Layer


class ShardedSoftening(Softening):
    """A softening of each rank's rows, by the same factors on all of them."""

    def __init__(self, layers: Sequence[Layer], shards: Shards, gathering: Gathering) -> None:
        self._shards, self._gathering = shards, gathering
        gathering.work_whole(partial(super().__init__, layers))

    def apply(self, read: Callable[[Tensor], Tensor | None]) -> None:
        if not self.layers:
            return
        taken = self._take(read)
        rows = dict(zip(taken.parameters, taken.rows, strict=True))

        def soften() -> None:
            measured = self.measure(rows.get)
            self.finish(measured, *unpack(self.sum(pack(measured)), measured))

        self._gathering.work_whole(soften)
        give_back(taken, self._shards)

    def measure_lengths(self, read: Callable[[Tensor], Tensor | None]) -> Tensor:
        taken = self._take(read)
        return super().measure_lengths(dict(zip(taken.parameters, taken.rows, strict=True)).get)

    def read_weights(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        return [rows for rows in take_rows(parameters, parameters, self._shards).rows if rows is not None]

    def sum(self, measured: Tensor) -> Tensor:
        return self._shards.total(measured)

    def _take(self, read: Callable[[Tensor], Tensor | None]) -> TakenRows:
        parameters = [parameter for layer in self.layers for parameter in layer.parameters]
        return take_rows(parameters, [read(parameter) for parameter in parameters], self._shards)


def pack(measured: Measured) -> Tensor:
    """Return what is to be summed over ranks, flat."""
    return torch.cat([measured.energies.flatten(), measured.squares, measured.moved.square()])


def unpack(summed: Tensor, measured: Measured) -> tuple[Tensor, Tensor, Tensor]:
    """Return energies, squares and the lengths of moves, from their sums."""
    sizes = [measured.energies.numel(), measured.squares.numel(), measured.moved.numel()]
    energies, squares, moved = summed.split(sizes)
    return energies.view_as(measured.energies), squares, moved.sqrt()
