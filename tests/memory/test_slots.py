"""Slots and evictions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.memory.slots import EVICTIONS, Slots


def fill(eviction, offers, capacity, seed=0):
    """Offer directions of tasks in turn; return the table and which offer each slot holds."""
    slots, generator, held = Slots(), torch.Generator().manual_seed(seed), {}
    for number, task in enumerate(offers):
        slots, slot = slots.insert(task, capacity, eviction, generator)
        if slot is not None:
            held[slot] = number
    return slots, held


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(EVICTIONS)), st.lists(st.integers(0, 3), max_size=40).map(sorted), st.integers(1, 9))
def test_the_table_names_what_the_slots_hold(eviction, offers, capacity):
    slots, held = fill(eviction, offers, capacity)
    assert len(slots.tasks) == min(len(offers), capacity)
    assert slots.tasks == tuple(offers[held[slot]] for slot in range(len(slots.tasks)))
    assert slots.arrivals == tuple(held[slot] + 1 for slot in range(len(slots.tasks)))
    assert sum(slots.offered.values()) == len(offers)


def test_fifo_keeps_the_newest():
    _, held = fill("fifo", [0] * 5 + [1] * 6, 4)
    assert sorted(held.values()) == [7, 8, 9, 10]


def test_balanced_gives_equal_shares():
    slots, _ = fill("balanced", [0] * 20 + [1] * 30 + [2] * 40, 12)
    assert [slots.tasks.count(task) for task in range(3)] == [4, 4, 4]


@pytest.mark.parametrize("eviction", ["balanced", "reservoir"])
def test_every_offer_of_a_task_is_as_likely_to_stay(eviction):
    counts = torch.zeros(12)
    for seed in range(1200):
        _, held = fill(eviction, [0] * 12, 4, seed)
        counts[list(held.values())] += 1
    assert (counts - 400).abs().max() < 80  # standard deviation 16
