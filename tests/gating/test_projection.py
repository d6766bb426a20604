"""The projections against their definitions, through the memory that applies them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sfao.gating._layout import Layout
from sfao.gating.memory import Memory
from sfao.gating.projection import Cone, Sequential, Span
from sfao.gating.storage import Storage
from sfao.optim.reference import one_after_the_other, onto_complement_of_span, onto_cone

dimensions = st.integers(1, 24)
seeds = st.integers(0, 10**6)


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def memory_of(directions: Tensor, storage: str = "dense", dtype: str = "float32") -> Memory:
    """A memory that holds these vectors as the directions of one parameter."""
    layout = Layout(1, (directions.shape[1],))
    memory = Memory([Storage(storage, 1, dtype).make(layout)], max(len(directions), 1), torch.Generator())
    for direction in directions:
        norm = float(direction.double().norm())
        memory.store_if_admitted([direction[None]], norm, 0, eviction="fifo", admit_below=1.0)
    return memory


def projected(memory: Memory, gradient: Tensor, kind: str = "span") -> Tensor:
    update = gradient.clone()[None]
    memory.products.project_([update], float(gradient.double().norm()), kind, memory.slots)
    return update[0]


def held(memory: Memory) -> Tensor:
    rows = memory.blocks[0].used[0].double()
    return rows / rows.norm(dim=1, keepdim=True)


def nearly_dependent(count: int, size: int, spread: float, seed: int) -> Tensor:
    centre = randn(size, seed=seed)
    return centre / centre.norm() + spread * randn(count, size, seed=seed + 1) / size**0.5


@given(dimensions, st.integers(1, 40), seeds, st.sampled_from([1e-15, 1e-4, 1.0, 1e4, 1e15]))
def test_orthogonal_to_every_direction_for_any_number_of_them(size, count, seed, scale):
    memory = memory_of(randn(count, size, seed=seed))
    gradient = randn(size, seed=seed + 1) * scale
    update = projected(memory, gradient).double()
    assert (held(memory) @ update).abs().max() <= 1e-5 * gradient.double().norm()
    if count < size:
        assert torch.dist(update, onto_complement_of_span(gradient.double(), held(memory))) <= 1e-3 * gradient.norm()


@given(st.integers(2, 24), seeds)
def test_nothing_is_left_when_the_memory_spans_everything(size, seed):
    memory = memory_of(randn(2 * size, size, seed=seed))
    assert not projected(memory, randn(size, seed=seed + 1)).any()


@pytest.mark.parametrize("spread", [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 0.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_two_hundred_nearly_dependent_directions(spread, dtype):
    memory = memory_of(nearly_dependent(200, 3000, spread, seed=3), dtype=dtype)
    gradient = randn(3000, seed=4) + 20 * held(memory)[0].float()
    update = projected(memory, gradient).double()
    assert update.norm() > 0.1 * gradient.norm() / 20
    assert (held(memory) @ update).abs().max() <= 1e-5 * update.norm()


def test_a_gradient_inside_the_span_leaves_rounding_only():
    memory = memory_of(randn(5, 50, seed=0))
    gradient = (randn(5, seed=1).double() @ held(memory)).float()
    assert projected(memory, gradient).norm() <= 1e-5 * gradient.norm()


@given(st.integers(2, 24), st.integers(1, 12), seeds)
def test_projecting_twice_is_projecting_once(size, count, seed):
    memory = memory_of(randn(count, size, seed=seed))
    gradient = randn(size, seed=seed + 1)
    once = projected(memory, gradient)
    assert torch.dist(projected(memory, once) if once.any() else once, once) <= 1e-4 * gradient.norm()


@given(st.integers(4, 24), st.integers(2, 12), seeds)
def test_the_order_and_the_length_of_directions_do_not_matter(size, count, seed):
    directions, gradient = randn(count, size, seed=seed), randn(size, seed=seed + 1)
    shuffled = directions.flip(0) * torch.logspace(-8, 8, count)[:, None]
    if count < size:
        one, other = projected(memory_of(directions), gradient), projected(memory_of(shuffled), gradient)
        assert torch.dist(one, other) <= 1e-3 * gradient.norm()


@given(st.integers(2, 24), st.integers(1, 12), seeds)
def test_sequential_is_the_loop_of_the_released_code(size, count, seed):
    memory = memory_of(randn(count, size, seed=seed))
    gradient = randn(size, seed=seed + 1)
    expected = one_after_the_other(gradient.double(), held(memory))
    assert torch.dist(projected(memory, gradient, "sequential").double(), expected) <= 1e-5 * gradient.norm()


def test_sequential_leaves_only_the_last_direction_orthogonal():
    memory = memory_of(nearly_dependent(5, 40, 1.0, seed=0))
    along = (held(memory) @ projected(memory, randn(40, seed=1), "sequential").double()).abs()
    assert along[-1] < 1e-6
    assert along[:-1].min() > 1e-3


@given(st.integers(2, 16), st.integers(1, 24), seeds)
def test_the_cone_projection_is_the_nearest_safe_update(size, count, seed):
    memory = memory_of(randn(count, size, seed=seed))
    gradient = randn(size, seed=seed + 1)
    update = projected(memory, gradient, "cone").double()
    assert (held(memory) @ update).min() >= -1e-5 * gradient.norm()
    # Moreau: u is the projection iff it is in the cone, g - u in the polar cone, and both are orthogonal.
    assert abs(float(update @ (gradient.double() - update))) <= 1e-4 * gradient.norm() ** 2
    assert torch.dist(update, onto_cone(gradient.double(), held(memory))) <= 1e-3 * gradient.norm()


def test_the_cone_keeps_what_helps_everyone():
    directions = randn(10, 30, seed=0).abs()
    gradient = directions.sum(0)
    assert torch.equal(projected(memory_of(directions), gradient, "cone"), gradient)


def test_weights_of_duplicates_are_shared():
    """K^+ of two equal directions: each takes half, where an inverse would not exist."""
    gram = torch.ones(2, 2, dtype=torch.float64)
    assert torch.allclose(Span(gram).weights(torch.ones(2).double()), torch.tensor([0.5, 0.5]).double())
    assert Span(gram).rank == 1


def test_sequential_follows_arrival_not_slots():
    gram = torch.tensor([[1.0, 0.5], [0.5, 1.0]]).double()
    dots = torch.tensor([1.0, 1.0]).double()
    assert Sequential(gram, [0, 1]).weights(dots).tolist() == [1.0, 0.5]
    assert Sequential(gram, [1, 0]).weights(dots).tolist() == [0.5, 1.0]


def test_the_cone_ends_on_many_dependent_directions():
    directions = nearly_dependent(200, 50, 1e-3, seed=5).double()
    directions = directions / directions.norm(dim=1, keepdim=True)
    gradient = -directions.mean(0) + 0.1 * randn(50, seed=6)
    weights = Cone(directions @ directions.T).weights(directions @ gradient)
    update = gradient - directions.T @ weights
    assert (weights <= 0).all()
    assert (directions @ update).min() >= -1e-5 * gradient.norm()
