"""How much may be held, said in bytes: the capacity and the storage that fit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sfao.gating.layout import Layout
from sfao.gating.memory import make_block
from sfao.gating.options import MEMORY_DTYPES

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

# Storage, rank and dtype, the most faithful first. A batch-loss gradient of an MLP keeps 98.6 % of its
# energy at rank 4; bfloat16 keeps every direction to three digits. Beyond rank 8, factors cost more time than rows.
PREFERENCES = (
    ("dense", 1, "float32"),
    ("dense", 1, "bfloat16"),
    ("factored", 8, "float32"),
    ("factored", 4, "float32"),
    ("factored", 2, "float32"),
    ("factored", 1, "float32"),
    ("factored", 1, "bfloat16"),
)


@dataclass(frozen=True)
class MemoryPlan:
    """What a memory budget buys."""

    storage: str
    rank: int
    memory_dtype: str
    capacity: int
    bytes: int
    budget: int

    def __str__(self) -> str:
        storage = f"{self.storage} rank {self.rank}" if self.storage == "factored" else self.storage
        return (
            f"{storage} {self.memory_dtype}, {self.capacity} directions a layer, "
            f"{format_bytes(self.bytes)} of {format_bytes(self.budget)}"
        )


def plan_memory(layouts: Sequence[Layout], budget: int, capacity: int) -> MemoryPlan:
    """The most faithful storage that holds `capacity` directions within the budget.

    When none does, the smallest storage with as many directions as fit.
    """
    sizes = [(bytes_per_direction(layouts, *preference), preference) for preference in PREFERENCES]
    for each, preference in sizes:
        if each * capacity <= budget:
            return MemoryPlan(*preference, capacity, each * capacity, budget)
    each, preference = min(sizes)
    fitting = budget // each
    if fitting < 1:
        raise ValueError(
            f"`memory_budget` must hold at least one direction a layer, {format_bytes(each)} "
            f"for this model, got {format_bytes(budget)}"
        )
    return MemoryPlan(*preference, fitting, each * fitting, budget)


def bytes_per_direction(layouts: Sequence[Layout], storage: str, rank: int, dtype: str) -> int:
    blocks = (make_block(layout, storage, rank, MEMORY_DTYPES[dtype]) for layout in layouts)
    return sum(block.bytes_per_direction for block in blocks)


def parse_bytes(size: str | int) -> int:
    """64MiB, "1.5 GB", 4096: a number of bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
    if match is None or match[2].upper() not in UNITS:
        raise ValueError(f"`memory_budget` must be a size such as '64MiB', '2GB' or a number of bytes, got {size!r}")
    return int(float(match[1]) * UNITS[match[2].upper()])


def format_bytes(size: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"
