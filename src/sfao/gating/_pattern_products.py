"""Products among the directions of a memory, over the parameters that are active, computed anew where slots changed."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

import torch
from torch import Tensor

from sfao.gating._block import Block

T = TypeVar("T")
Active = tuple[bool, ...]
#: Sums what is measured of rows over all who hold some.
Sum = Callable[[Tensor], Tensor]


def keep_sum(measured: Tensor) -> Tensor:
    """Return the sum over one who holds all rows."""
    return measured


def by_block(blocks: Sequence[Block], values: Sequence[T]) -> Iterator[tuple[Block, Sequence[T]]]:
    """Yield each block with the values, one per parameter, of the parameters that it holds."""
    start = 0
    for block in blocks:
        end = start + len(block.layout.columns)
        yield block, values[start:end]
        start = end


class PatternProducts:
    """Norms and Gram matrix of the directions of some blocks, over the parameters that are active."""

    def __init__(self, active: Active, count: int) -> None:
        self.active = active
        #: True if some direction is zero in the active parameters.
        self.has_zero = False
        self.stale_norms = set(range(count))
        self.stale_gram = set(range(count))
        self.kept_norms = torch.empty(0, dtype=torch.float64, device="cpu")
        self.kept_gram = torch.empty(0, 0, dtype=torch.float64, device="cpu")

    def copy(self) -> "PatternProducts":
        """Return the same products, of which one may go stale without the other; tensors are replaced, not changed."""
        other = copy(self)
        other.stale_norms, other.stale_gram = set(self.stale_norms), set(self.stale_gram)
        return other

    @property
    def bytes(self) -> int:
        return self.kept_norms.nbytes + self.kept_gram.nbytes

    def inverse_norms(self, blocks: Sequence[Block], sum_: Sum = keep_sum) -> Tensor:
        """Return 1 / |b|, and 0 for a direction that is zero in the active parameters: it constrains nothing."""
        if self.stale_norms:
            slots = _index(self.stale_norms, blocks)
            squares = torch.stack([block.squares(slots, part) for block, part in by_block(blocks, self.active)]).sum(0)
            squares = sum_(squares)
            self.kept_norms = _resize(self.kept_norms.to(slots.device), blocks[0].count)
            self.kept_norms[slots] = torch.where(squares > 0, squares.rsqrt(), 0.0)
            self.has_zero = bool((self.kept_norms == 0).any())
            self.stale_norms.clear()
        return self.kept_norms

    def gram(self, blocks: Sequence[Block], sum_: Sum = keep_sum) -> Tensor:
        if self.stale_gram:
            slots = _index(self.stale_gram, blocks)
            rows = torch.stack([block.gram(slots, part) for block, part in by_block(blocks, self.active)]).sum(0)
            rows = sum_(rows)
            self.kept_gram = _resize(self.kept_gram.to(slots.device), blocks[0].count)
            self.kept_gram[slots] = rows
            self.kept_gram[:, slots] = rows.T
            self.stale_gram.clear()
        return self.kept_gram

    def state_dict(self) -> dict[str, Any]:
        """Return what is known and what is stale: computed anew in other pieces, a product may differ in a bit."""
        return {
            "active": list(self.active),
            "has_zero": self.has_zero,
            "inverse_norms": self.kept_norms.clone(),
            "gram": self.kept_gram.clone(),
            "stale_norms": sorted(self.stale_norms),
            "stale_gram": sorted(self.stale_gram),
        }


def read_pattern(state: dict[str, Any], device: torch.device) -> PatternProducts:
    """Return the products with what was known of them."""
    pattern = PatternProducts(tuple(state["active"]), 0)
    pattern.has_zero = state["has_zero"]
    pattern.kept_norms = state["inverse_norms"].to(device, copy=True)
    pattern.kept_gram = state["gram"].to(device, copy=True)
    pattern.stale_norms, pattern.stale_gram = set(state["stale_norms"]), set(state["stale_gram"])
    return pattern


def _index(slots: set[int], blocks: Sequence[Block]) -> Tensor:
    return torch.tensor(sorted(slots), device=blocks[0].tensors[0].device)


def _resize(old: Tensor, count: int) -> Tensor:
    new = old.new_zeros((count,) * old.ndim)
    corner = (slice(min(len(old), count)),) * old.ndim
    new[corner] = old[corner]
    return new
