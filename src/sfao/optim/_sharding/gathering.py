"""The input side of memories, which all rows of a layer need: held in shards, and whole for as long as a step takes."""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from sfao.gating.factored import FactoredBlock
from sfao.gating.memory import Memory
from sfao.optim._sharding.shards import Shards
from sfao.optim._whole_or_not import restore_after
from sfao.optim.layers import Layer

T = TypeVar("T")

#: Pieces of a message begin at multiples of this.
ALIGNED_BYTES = 16


class _Place(NamedTuple):
    """A tensor that is cut along its last dimension: its own shape, padded, and where its bytes begin."""

    own: Tensor
    columns: int
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape) * self.own.dtype.itemsize


class Gathering:
    """Brings axes, probes and right factors of all layers together, in one collective, and lets go of them again.

    Each rank holds its columns of them in one buffer, which is what it sends.
    """

    def __init__(self, layers: Sequence[Layer], shards: Shards) -> None:
        self._layers, self._shards = layers, shards
        self.made_for = describe(layers)
        self._spaces = [space for layer in layers for space in layer.spaces if not space.is_empty]
        self._blocks = [
            block
            for layer in layers
            for block in layer.memory.blocks
            if isinstance(block, FactoredBlock) and block.count
        ]
        self._is_open = False
        held = [(tensor, space.layout.width) for space in self._spaces for tensor in (space.axes, space.probes)]
        for block in self._blocks:
            held += list(zip(block.tensors[1:], block.layout.columns, strict=True))
        self._places: list[_Place] = []
        start = 0
        for tensor, columns in held:
            place = _Place(tensor, columns, (*tensor.shape[:-1], shards.most(columns)), start)
            self._places.append(place)
            start = -(-place.stop // ALIGNED_BYTES) * ALIGNED_BYTES
        device = held[0][0].device if held else torch.device("cpu")
        self._buffer = torch.zeros(start, dtype=torch.uint8, device=device)
        for place in self._places:
            self._view(self._buffer, place)[..., : place.own.shape[-1]] = place.own
        self._rest = [self._view(self._buffer, place)[..., : place.own.shape[-1]] for place in self._places]
        self._places = [place._replace(own=rest) for place, rest in zip(self._places, self._rest, strict=True)]
        self._hold(self._rest)

    def work_whole(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; memories hold all columns meanwhile, and their own again however it ends."""
        if self._is_open or not self._places:
            return work()

        def open_and_work() -> T:
            found = self._shards.gather(self._buffer)
            self._hold([self._join(found, place) for place in self._places])
            self._is_open = True
            return work()

        return restore_after(open_and_work, self._let_go)

    def _let_go(self) -> None:
        self._is_open = False
        self._hold(self._rest)

    def _join(self, found: Tensor, place: _Place) -> Tensor:
        parts = [self._view(of_rank, place) for of_rank in found.unbind()]
        return torch.cat(parts, -1)[..., : place.columns].contiguous()

    @staticmethod
    def _view(buffer: Tensor, place: _Place) -> Tensor:
        return buffer[place.start : place.stop].view(place.own.dtype).view(place.shape)

    def _hold(self, tensors: Sequence[Tensor]) -> None:
        remaining = iter(tensors)
        for space in self._spaces:
            space.axes, space.probes = next(remaining), next(remaining)
        for block in self._blocks:
            block.hold_tensors([block.tensors[0], *(next(remaining) for _ in block.layout.columns)])


def describe(layers: Sequence[Layer]) -> list[tuple[int, Memory, int]]:
    """Return what is other whenever memories are."""
    return [(layer.space_version, layer.memory, layer.memory.version) for layer in layers]
