"""A memory budget in bytes: the capacity and the storage that fit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sfao.gating._layout import Layout
from sfao.gating.memories import MEMORIES
from sfao.gating.storage import Storage
from sfao.gating.subspace import count_bytes

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

# The most faithful first. A batch-loss gradient of an MLP keeps 98.6 % of its energy at rank 4; bfloat16 keeps every
# direction to three digits. Beyond rank 8, factors cost more time than rows.
PREFERENCES = (
    Storage("dense", 1, "float32"),
    Storage("dense", 1, "bfloat16"),
    Storage("factored", 8, "float32"),
    Storage("factored", 4, "float32"),
    Storage("factored", 2, "float32"),
    Storage("factored", 1, "float32"),
    Storage("factored", 1, "bfloat16"),
)


@dataclass(frozen=True)
class MemoryPlan:
    """The axes, and the storage and capacity of directions, that a memory budget buys; 0 of what is not held."""

    storage: Storage
    capacity: int
    bytes: int
    budget: int
    axes: int = 0

    def __str__(self) -> str:
        parts = [f"{self.axes} axes per layer"] if self.axes else []
        parts += [f"{self.storage}, {self.capacity} directions a layer"] if self.capacity else []
        return f"{', '.join(parts)}, {format_bytes(self.bytes)} of {format_bytes(self.budget)}"


def plan_memories(
    memory: str, layouts: Sequence[Layout], matrices: Sequence[Layout], budget: int, capacity: int, axes: int
) -> MemoryPlan:
    """Return what fits within the budget; two memories get half of it each.

    Args:
        layouts: of all parameters, which directions have entries for.
        matrices: of those that may have an input space.
    """
    share = budget // len(MEMORIES[memory])
    plan = MemoryPlan(PREFERENCES[0], 0, 0, budget)
    if "directions" in MEMORIES[memory]:
        plan = replace(plan_memory(layouts, share, capacity), budget=budget)
    if "subspace" in MEMORIES[memory]:
        held = plan_axes(matrices, share, axes)
        plan = replace(plan, axes=held, bytes=plan.bytes + sum(count_bytes(layout, held) for layout in matrices))
    return plan


def plan_axes(matrices: Sequence[Layout], budget: int, axes: int) -> int:
    """Return how many axes per layer, at most `axes`, fit within the budget."""

    def needed(held: int) -> int:
        return sum(count_bytes(layout, held) for layout in matrices)

    if needed(1) > budget:
        raise ValueError(
            f"`memory_budget` must hold at least one axis per layer, {format_bytes(needed(1))} for this model, "
            f"got {format_bytes(budget)}"
        )
    low, high = 1, axes
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needed(middle) <= budget else (low, middle - 1)
    return low


def plan_memory(layouts: Sequence[Layout], budget: int, capacity: int) -> MemoryPlan:
    """Return the most faithful storage that holds `capacity` directions within the budget.

    When none does, the smallest storage with as many directions as fit.
    """
    sizes = [(storage.bytes_per_direction(layouts), storage) for storage in PREFERENCES]
    for each, storage in sizes:
        if each * capacity <= budget:
            return MemoryPlan(storage, capacity, each * capacity, budget)
    each, storage = min(sizes)
    fitting = budget // each
    if fitting < 1:
        raise ValueError(
            f"`memory_budget` must hold at least one direction a layer, {format_bytes(each)} "
            f"for this model, got {format_bytes(budget)}"
        )
    return MemoryPlan(storage, fitting, each * fitting, budget)


def parse_bytes(size: str | int) -> int:
    """Return the number of bytes that 64MiB, "1.5 GB" or 4096 means."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
    if match is None or match[2].upper() not in UNITS:
        raise ValueError(f"`memory_budget` must be a size such as '64MiB', '2GB' or a number of bytes, got {size!r}")
    return int(float(match[1]) * UNITS[match[2].upper()])


def format_bytes(size: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"
