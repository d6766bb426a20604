"""Inner products among the stored directions, kept in float64 and recomputed only where slots changed."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from sfao.gating.block import Block

T = TypeVar("T")


def by_block(blocks: Sequence[Block], values: Sequence[T]) -> Iterator[tuple[Block, Sequence[T]]]:
    """Deal values, one a parameter, out to the blocks that hold those parameters."""
    start = 0
    for block in blocks:
        end = start + len(block.layout.columns)
        yield block, values[start:end]
        start = end


class Products:
    """Norms and Gram matrix of the first `count` directions, over the parameters that are active."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._active: tuple[bool, ...] = ()
        self._norms = torch.empty(0, dtype=torch.float64)
        self._gram = torch.empty(0, 0, dtype=torch.float64)
        self._stale_norms: set[int] = set()
        self._stale_gram: set[int] = set()

    def changed(self, slot: int) -> None:
        self._stale_norms.add(slot)
        self._stale_gram.add(slot)

    def norms(self, blocks: Sequence[Block], count: int, active: tuple[bool, ...]) -> Tensor:
        slots = self._stale(self._stale_norms, len(self._norms), count, active)
        if slots:
            index = torch.tensor(slots, device=blocks[0].tensors[0].device)
            parts = [block.squares(index, part) for block, part in by_block(blocks, active)]
            self._norms = _resized(self._norms, (count,), index.device)
            self._norms[index] = torch.stack(parts).sum(0).sqrt()
            self._stale_norms.clear()
        return self._norms

    def gram(self, blocks: Sequence[Block], count: int, active: tuple[bool, ...]) -> Tensor:
        slots = self._stale(self._stale_gram, len(self._gram), count, active)
        if slots:
            index = torch.tensor(slots, device=blocks[0].tensors[0].device)
            parts = [block.gram(index, count, part) for block, part in by_block(blocks, active)]
            rows = torch.stack(parts).sum(0)
            self._gram = _resized(self._gram, (count, count), index.device)
            self._gram[index] = rows
            self._gram[:, index] = rows.T
            self._stale_gram.clear()
        return self._gram

    def _stale(self, changed: set[int], known: int, count: int, active: tuple[bool, ...]) -> list[int]:
        """The slots to compute anew: all of them when other parameters are active than last time."""
        if active != self._active:
            self.forget()
            self._active = active
            return list(range(count))
        return sorted(changed.union(range(known, count)))


def _resized(old: Tensor, shape: tuple[int, ...], device: torch.device) -> Tensor:
    new = torch.zeros(shape, dtype=torch.float64, device=device)
    corner = tuple(slice(min(a, b)) for a, b in zip(old.shape, shape, strict=True))
    new[corner] = old[corner].to(device)
    return new
