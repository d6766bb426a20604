from collections import Counter

import pytest
import torch

from sfao.gating.eviction import EVICTIONS, Slots


def fill(eviction: str, offers: list[int], capacity: int, seed: int = 0) -> tuple[Slots, list[int]]:
    """Offer one direction a task number; returns the slots and which offer each slot holds."""
    slots, held, generator = Slots(), [], torch.Generator().manual_seed(seed)
    for number, task in enumerate(offers):
        slots.offered[task] = slots.offered.get(task, 0) + 1
        slot = EVICTIONS[eviction](slots, task, generator) if len(held) == capacity else len(held)
        if slot is None:
            continue
        slots.tasks[slot : slot + 1] = [task]
        slots.arrivals[slot : slot + 1] = [number]
        held[slot : slot + 1] = [number]
    return slots, held


def test_fifo_keeps_the_latest():
    _, held = fill("fifo", [0] * 10 + [1] * 7, 5)
    assert sorted(held) == [12, 13, 14, 15, 16]


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 7])
def test_balanced_gives_every_task_its_share(tasks):
    slots, _ = fill("balanced", [t for t in range(tasks) for _ in range(60)], 20)
    shares = Counter(slots.tasks)
    assert len(shares) == tasks
    assert max(shares.values()) - min(shares.values()) <= 1


def test_balanced_keeps_a_small_task_whole():
    slots, _ = fill("balanced", [0] * 3 + [1] * 100 + [2] * 100, 20)
    assert Counter(slots.tasks)[0] == 3


def test_balanced_keeps_a_uniform_sample_of_each_task():
    hits = Counter(n for seed in range(2000) for n in fill("balanced", [0] * 20 + [1] * 20, 8, seed)[1])
    # 4 of 20 kept: 400 expected each, standard deviation 18
    assert all(abs(hits[n] - 400) < 90 for n in range(40))


def test_reservoir_keeps_a_uniform_sample_of_everything():
    hits = Counter(n for seed in range(2000) for n in fill("reservoir", [0] * 30 + [1] * 10, 8, seed)[1])
    # 8 of 40 kept: 400 expected each
    assert all(abs(hits[n] - 400) < 90 for n in range(40))


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_nothing_is_evicted_before_the_memory_is_full(eviction):
    _, held = fill(eviction, [0, 0, 1, 1], 4)
    assert held == [0, 1, 2, 3]
