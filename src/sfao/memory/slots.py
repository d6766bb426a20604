"""The slots of a memory: which direction a new one replaces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch


@dataclass(frozen=True)
class Slots:
    """The slot table of a memory: the task and the arrival number of each stored direction."""

    tasks: tuple[int, ...] = ()
    arrivals: tuple[int, ...] = ()
    #: The number of directions that each task has offered, stored or not.
    offered: Mapping[int, int] = field(default_factory=dict)

    def insert(self, task: int, capacity: int, eviction: str, generator: torch.Generator) -> "tuple[Slots, int | None]":
        """Return the table after one more direction of a task was offered, and its slot, None if it isn't stored.

        The direction itself isn't needed, so slots are assigned before any gradient is computed.
        """
        offered = replace(self, offered={**self.offered, task: self.offered.get(task, 0) + 1})
        slot: int | None = len(self.tasks)
        if len(self.tasks) >= capacity:
            slot = EVICTIONS[eviction](offered, task, generator)
        return (offered, None) if slot is None else (offered.set(slot, task, sum(offered.offered.values())), slot)

    def set(self, slot: int, task: int, arrival: int) -> "Slots":
        """Return the table with another direction in a slot, which may be the next free one."""
        tasks = (*self.tasks[:slot], task, *self.tasks[slot + 1 :])
        return Slots(tasks, (*self.arrivals[:slot], arrival, *self.arrivals[slot + 1 :]), self.offered)


def fifo(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Evict the oldest direction."""
    return min(range(len(slots.arrivals)), key=slots.arrivals.__getitem__)


def reservoir(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Keep every direction that was ever offered with the same probability."""
    place = _draw_below(sum(slots.offered.values()), generator)
    return place if place < len(slots.tasks) else None


def balanced(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Give every task an equal share, a uniform sample of what it offered.

    While the new direction's task holds less than the largest share, a random direction of the largest task (the oldest
    of them) goes. After that the task is a reservoir of its own.
    """
    held: dict[int, list[int]] = {owner: [] for owner in sorted({*slots.tasks, task})}
    for slot, owner in enumerate(slots.tasks):
        held[owner].append(slot)
    largest = max(held.values(), key=len)
    if len(held[task]) < len(largest):
        return largest[_draw_below(len(largest), generator)]
    place = _draw_below(slots.offered[task], generator)
    return held[task][place] if place < len(held[task]) else None


EVICTIONS: dict[str, Callable[[Slots, int, torch.Generator], int | None]] = {
    "balanced": balanced,
    "fifo": fifo,
    "reservoir": reservoir,
}


def _draw_below(bound: int, generator: torch.Generator) -> int:
    return int(torch.randint(bound, (), generator=generator, device="cpu"))
