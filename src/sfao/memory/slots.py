"""The slots of a memory: which direction a new one replaces."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Slots:
    """The slot table of a memory: the task and the arrival number of each stored direction."""

    tasks: tuple[int, ...] = ()
    arrivals: tuple[int, ...] = ()
    #: The number of directions that each task has offered, stored or not.
    offered: Mapping[int, int] = field(default_factory=dict)

    @staticmethod
    def make(table: Sequence[tuple[int, int]], offered: Mapping[int, int]) -> "Slots":
        """Return slots with these tasks and arrival numbers."""
        return Slots(tuple(task for task, _ in table), tuple(arrival for _, arrival in table), offered)

    def read(self, slot: int) -> tuple[int, int]:
        """Return the task and the arrival number of a slot."""
        return self.tasks[slot], self.arrivals[slot]

    @property
    def total_offered(self) -> int:
        return sum(self.offered.values())

    def insert(self, task: int, capacity: int, eviction: str, generator: torch.Generator) -> "tuple[Slots, int | None]":
        """Return the table after one more direction of a task was offered, and its slot, None if it isn't stored.

        The direction itself isn't needed, so slots are assigned before any gradient is computed.
        """
        offered = Slots(self.tasks, self.arrivals, {**self.offered, task: self.offered.get(task, 0) + 1})
        slot = len(self.tasks)
        if slot >= capacity:
            evicted = EVICTIONS[eviction](offered, task, generator)
            if evicted is None:
                return offered, None
            slot = evicted
        return offered.set(slot, task, offered.total_offered), slot

    def set(self, slot: int, task: int, arrival: int) -> "Slots":
        """Return the table with another direction in a slot, which may be the next free one."""
        tasks = (*self.tasks[:slot], task, *self.tasks[slot + 1 :])
        return Slots(tasks, (*self.arrivals[:slot], arrival, *self.arrivals[slot + 1 :]), self.offered)


def fifo(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Evict the oldest direction."""
    return min(range(len(slots.arrivals)), key=slots.arrivals.__getitem__)


def reservoir(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Keep every direction that was ever offered with the same probability."""
    place = _draw_below(slots.total_offered, generator)
    return place if place < len(slots.tasks) else None


def balanced(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Give every task an equal share, a uniform sample of what it offered.

    While the new direction's task holds less than the largest share, a random direction of the largest task (the oldest
    of them) goes. After that the task is a reservoir of its own.
    """
    held = {owner: slots.tasks.count(owner) for owner in sorted(set(slots.tasks))}
    largest = max(held, key=held.__getitem__)
    if held.get(task, 0) < held[largest]:
        return _find_slots(slots, largest)[_draw_below(held[largest], generator)]
    place = _draw_below(slots.offered[task], generator)
    return _find_slots(slots, task)[place] if place < held[task] else None


EVICTIONS: dict[str, Callable[[Slots, int, torch.Generator], int | None]] = {
    "balanced": balanced,
    "fifo": fifo,
    "reservoir": reservoir,
}


def _find_slots(slots: Slots, task: int) -> list[int]:
    return [slot for slot, owner in enumerate(slots.tasks) if owner == task]


def _draw_below(bound: int, generator: torch.Generator) -> int:
    return int(torch.randint(bound, (), generator=generator, device="cpu"))
