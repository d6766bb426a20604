"""A storage as a value: its kind, rank and dtype, and the blocks that hold directions so."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfao.gating._block import Block
from sfao.gating._layout import Layout
from sfao.gating.dense import DenseBlock
from sfao.gating.factored import FactoredBlock

STORAGES: dict[str, type[Block]] = {block.kind: block for block in (DenseBlock, FactoredBlock)}
MEMORY_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, order=True)
class Storage:
    """A way to hold directions: as a kind of block, of a rank where it has one, in a dtype."""

    kind: str
    rank: int
    dtype: str

    @staticmethod
    def of(options: Mapping[str, Any]) -> "Storage":
        """Return the storage that the options of a group name."""
        return Storage(options["storage"], options["rank"], options["memory_dtype"])

    @property
    def options(self) -> dict[str, Any]:
        """The options that name this storage."""
        return {"storage": self.kind, "rank": self.rank, "memory_dtype": self.dtype}

    def make(self, layout: Layout) -> Block:
        """Return an empty block for directions of this layout."""
        return STORAGES[self.kind].make(layout, MEMORY_DTYPES[self.dtype], self.rank)

    def bytes_per_direction(self, layouts: Iterable[Layout]) -> int:
        """Return the bytes that one direction of a layer with these layouts takes."""
        return sum(self.make(layout).bytes_per_direction for layout in layouts)

    @property
    def form(self) -> str:
        """The kind in words, with the rank if it has one."""
        return f"{self.kind} rank {self.rank}" if STORAGES[self.kind].has_rank else self.kind

    def __str__(self) -> str:
        return f"{self.form} {self.dtype}"


#: The options that a storage is made of.
STORAGE_OPTIONS = ("storage", "rank", "memory_dtype")


def load_block(kind: str, layout: Layout, tensors: Sequence[Tensor], device: torch.device) -> Block:
    """Return a block of this kind that holds what another one held in `tensors`."""
    if kind not in STORAGES:
        raise ValueError(f"a block of kind {kind!r}")
    if kind == DenseBlock.kind:  # matrices, or their entries in a row
        tensors = [tensor.flatten(1) for tensor in tensors]
    block = STORAGES[kind].make_like(layout, tensors)
    block.load(tensors, device)
    return block
