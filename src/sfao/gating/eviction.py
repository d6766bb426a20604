"""The slot that a new direction takes when the memory is full."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass
class Slots:
    """The origin of the directions of a memory: the task and the arrival of each slot."""

    tasks: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    #: How many directions each task has offered, kept or not.
    offered: dict[int, int] = field(default_factory=dict)

    def copy(self) -> "Slots":
        return Slots(list(self.tasks), list(self.arrivals), dict(self.offered))

    @property
    def total_offered(self) -> int:
        return sum(self.offered.values())

    def offer(self, task: int, capacity: int, eviction: str, generator: torch.Generator) -> int | None:
        """Enter one more direction of a task: the slot it takes, or None if it is not kept.

        What it looks like plays no part, so whole tasks can be entered before any of their gradients is taken.
        """
        self.offered[task] = self.offered.get(task, 0) + 1
        full = len(self.tasks) >= capacity
        slot = EVICTIONS[eviction](self, task, generator) if full else len(self.tasks)
        if slot is not None:
            self.tasks[slot : slot + 1] = [task]
            self.arrivals[slot : slot + 1] = [self.total_offered]
        return slot


def fifo(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """The oldest direction goes."""
    return min(range(len(slots.arrivals)), key=slots.arrivals.__getitem__)


def reservoir(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Every direction ever offered is kept with the same probability."""
    place = _uniform(slots.total_offered, generator)
    return place if place < len(slots.tasks) else None


def balanced(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Every task keeps an equal share, a uniform sample of what it offered.

    While the newcomer's task holds less than the largest share, a random direction of a largest task goes
    (the oldest of these tasks); after that the newcomer's task is a reservoir of its own.
    """
    held = {owner: slots.tasks.count(owner) for owner in sorted(set(slots.tasks))}
    largest = max(held, key=held.__getitem__)
    if held.get(task, 0) < held[largest]:
        return _of_task(slots, largest)[_uniform(held[largest], generator)]
    place = _uniform(slots.offered[task], generator)
    return _of_task(slots, task)[place] if place < held[task] else None


EVICTIONS: dict[str, Callable[[Slots, int, torch.Generator], int | None]] = {
    "balanced": balanced,
    "fifo": fifo,
    "reservoir": reservoir,
}


def _of_task(slots: Slots, task: int) -> list[int]:
    return [slot for slot, owner in enumerate(slots.tasks) if owner == task]


def _uniform(below: int, generator: torch.Generator) -> int:
    return int(torch.randint(below, (), generator=generator, device="cpu"))
