"""A memory that changes: rolled back, joined by parameters, saved and loaded, filled."""

import pytest
import torch

from sfao.cost.filling import fill_memory
from sfao.gating._layout import Layout
from sfao.gating.memory import Memory
from sfao.gating.storage import Storage
from tests.gating.test_memory import direction, flat, gradient, memory, norm, offer, offer_and_fail, project


def test_a_failure_leaves_the_memory_as_it_was():
    held = memory(capacity=3)
    for seed in range(3):
        offer(held, gradient(seed))
    before, state = [direction(held, slot) for slot in range(3)], held.state_dict()
    expected = gradient(9)
    project(held, expected, norm(expected), "span")
    with pytest.raises(KeyboardInterrupt):
        offer_and_fail(held, range(10, 20), KeyboardInterrupt)
    assert all(torch.equal(direction(held, slot), before[slot]) for slot in range(3))
    again = held.state_dict()
    assert again["tasks"] == state["tasks"]
    assert again["offered"] == state["offered"]
    assert torch.equal(again["generator"], state["generator"])
    parts = gradient(9)
    project(held, parts, norm(parts), "span")
    assert torch.equal(flat(parts), flat(expected))


def test_a_failure_gives_back_what_was_reserved():
    held = memory(capacity=50)
    offer(held, gradient(0))
    held_bytes = held.bytes
    with pytest.raises(RuntimeError):
        offer_and_fail(held, range(1, 40), RuntimeError)
    assert held.bytes == held_bytes
    assert len(held) == 1


def test_new_parameters_join_with_zeros():
    held = memory()
    offer(held, gradient(0))
    held.add_block(Storage("dense", 1, "float32").make(Layout(1, (5,))))
    parts = [*gradient(1), torch.randn(1, 5)]
    expected = direction(held, 0)[:60] @ flat(gradient(1))
    assert torch.allclose(held.products.dots(parts), expected, atol=1e-5)
    offer(held, parts)
    assert len(held) == 2


def test_the_gram_matrix_is_recomputed_only_where_slots_changed():
    """Incremental and from scratch must agree to the last bit that matters."""
    held = memory(capacity=5)
    for seed in range(12):
        offer(held, gradient(seed), task=seed // 4)
        probe = gradient(100 + seed)
        project(held, probe, norm(probe), "span")
        fresh = Memory.from_state_dict(held.state_dict(), held.products.layouts, torch.device("cpu"))
        fresh.to(torch.device("cpu"))  # forgets what was computed
        again = gradient(100 + seed)
        project(fresh, again, norm(again), "span")
        assert torch.allclose(flat(probe), flat(again), atol=1e-5)


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_a_loaded_memory_projects_bit_for_bit_however_it_came_to_be(storage):
    """At this size, inner products taken task by task differ in their last bits from all of them at once."""
    layout = Layout(96, (300, 1))
    held = memory(storage, capacity=200, layouts=(layout,))
    for task, count in enumerate((97, 53)):
        for seed in range(count):
            offer(held, gradient(1000 * task + seed, 1, layout), task)
        project(held, gradient(5000, layout=layout), 1.0, "span")
    loaded = Memory.from_state_dict(held.state_dict(), held.products.layouts, torch.device("cpu"))
    one, two = ([part.double() for part in gradient(6000, layout=layout)] for _ in range(2))
    project(held, one, norm(one), "span")
    project(loaded, two, norm(two), "span")
    assert torch.equal(flat(one), flat(two))


def test_a_memory_knows_when_nothing_is_left():
    small = Layout(2, (2, 1))
    held = memory(capacity=20, layouts=(small,))
    for _ in range(8):
        offer(held, gradient(0, layout=small))  # as many as there are parameters and more, but all the same
        assert not held.products.spans_everything
    for seed in range(6):
        offer(held, gradient(seed, layout=small))
    assert held.products.spans_everything


@pytest.mark.parametrize("count", [0, 11])
def test_it_is_not_filled_beyond_its_capacity(count):
    with pytest.raises(ValueError, match="`count` must be from 1 to the capacity"):
        fill_memory(memory(), count, torch.device("cpu"))
