"""Inner products among the stored directions, kept in float64 and recomputed only where slots changed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

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
    """Norms and Gram matrix of the directions of some blocks, over the parameters that are active."""

    def __init__(self, active: tuple[bool, ...], count: int) -> None:
        self.active = active
        #: Whether some direction is zero in the active parameters.
        self.has_zero = False
        self._inverse_norms = torch.empty(0, dtype=torch.float64, device="cpu")
        self._gram = torch.empty(0, 0, dtype=torch.float64, device="cpu")
        self._stale_norms = set(range(count))
        self._stale_gram = set(range(count))

    @property
    def bytes(self) -> int:
        return self._inverse_norms.nbytes + self._gram.nbytes

    def changed(self, slots: Iterable[int]) -> None:
        self._stale_norms.update(slots)
        self._stale_gram.update(slots)

    def closed(self, slots: Iterable[int]) -> None:
        """Slots that are not in use after all, since they changed and before anything was computed of them."""
        self._stale_norms.difference_update(slots)
        self._stale_gram.difference_update(slots)

    def inverse_norms(self, blocks: Sequence[Block]) -> Tensor:
        """1 / |b|, and 0 for a direction that is zero in the active parameters: it constrains nothing."""
        if self._stale_norms:
            slots = _index(self._stale_norms, blocks)
            squares = torch.stack([block.squares(slots, part) for block, part in by_block(blocks, self.active)]).sum(0)
            self._inverse_norms = _resized(self._inverse_norms.to(slots.device), blocks[0].count)
            self._inverse_norms[slots] = torch.where(squares > 0, squares.rsqrt(), 0.0)
            self.has_zero = bool((self._inverse_norms == 0).any())
            self._stale_norms.clear()
        return self._inverse_norms

    def gram(self, blocks: Sequence[Block]) -> Tensor:
        if self._stale_gram:
            slots = _index(self._stale_gram, blocks)
            rows = torch.stack([block.gram(slots, part) for block, part in by_block(blocks, self.active)]).sum(0)
            self._gram = _resized(self._gram.to(slots.device), blocks[0].count)
            self._gram[slots] = rows
            self._gram[:, slots] = rows.T
            self._stale_gram.clear()
        return self._gram

    def state_dict(self) -> dict[str, Any]:
        """What is known and what is stale. Computed anew in other pieces, a product could differ in its last bit."""
        return {
            "active": list(self.active),
            "has_zero": self.has_zero,
            "inverse_norms": self._inverse_norms.clone(),
            "gram": self._gram.clone(),
            "stale_norms": sorted(self._stale_norms),
            "stale_gram": sorted(self._stale_gram),
        }

    @staticmethod
    def from_state_dict(state: dict[str, Any], device: torch.device) -> "Products":
        products = Products(tuple(state["active"]), 0)
        products.has_zero = state["has_zero"]
        products._inverse_norms = state["inverse_norms"].to(device, copy=True)
        products._gram = state["gram"].to(device, copy=True)
        products._stale_norms, products._stale_gram = set(state["stale_norms"]), set(state["stale_gram"])
        return products


def _index(slots: set[int], blocks: Sequence[Block]) -> Tensor:
    return torch.tensor(sorted(slots), device=blocks[0].tensors[0].device)


def _resized(old: Tensor, count: int) -> Tensor:
    new = old.new_zeros((count,) * old.ndim)
    corner = (slice(min(len(old), count)),) * old.ndim
    new[corner] = old[corner]
    return new
