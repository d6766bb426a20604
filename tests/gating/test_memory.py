"""Storages, admission, rollback and bookkeeping of a memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sfao.cost.filling import fill_memory
from sfao.gating._layout import Layout
from sfao.gating._low_rank import low_rank
from sfao.gating.factored import FactoredBlock
from sfao.gating.memory import Memory
from sfao.gating.storage import Storage

LINEAR = Layout(6, (9, 1))  # a Linear layer of 9 inputs and 6 outputs


def memory(storage="dense", rank=1, dtype="float32", capacity=10, layouts=(LINEAR,)) -> Memory:
    blocks = [Storage(storage, rank, dtype).make(layout) for layout in layouts]
    return Memory(blocks, capacity, torch.Generator().manual_seed(0))


def gradient(seed: int, rank: int = 100, layout: Layout = LINEAR) -> list[Tensor]:
    """[dW | db] as the mean over `rank` examples: a matrix of that rank."""
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(layout.rows, rank, generator=generator)
    inputs = torch.randn(rank, layout.width, generator=generator)
    return [part.contiguous() for part in torch.split(outputs @ inputs, list(layout.columns), dim=1)]


def offer(memory: Memory, parts: list[Tensor | None], task=0, eviction="balanced", admit_below=1.0) -> bool:
    return memory.store_if_admitted(parts, norm(parts), task, eviction=eviction, admit_below=admit_below)


def project(memory: Memory, parts, size: float, kind: str) -> None:
    memory.products.project_(parts, size, kind, memory.slots)


def norm(parts) -> float:
    return float(torch.cat([p.flatten() for p in parts if p is not None]).double().norm())


def direction(memory: Memory, slot: int) -> Tensor:
    """The direction a slot stands for, as one vector."""
    vectors = []
    for block in memory.blocks:
        if isinstance(block, FactoredBlock):
            left, *rights = (tensor[slot].double() for tensor in block.used)
            vectors += [(left.T @ right).flatten() for right in rights]
        else:
            vectors += [tensor[slot].double() for tensor in block.used]
    return torch.cat(vectors)


def flat(parts) -> Tensor:
    return torch.cat([part.flatten() for part in parts]).double()


@pytest.mark.parametrize(("storage", "rank"), [("dense", 1), ("factored", 1), ("factored", 2), ("factored", 3)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layouts", [(LINEAR,), (LINEAR, Layout(1, (5, 5)), Layout(8, (7,)))])
class TestStorages:
    """What a memory computes must be what the directions it holds imply, whatever way it holds them."""

    def filled(self, storage, rank, dtype, layouts) -> Memory:
        held = memory(storage, rank, dtype, layouts=layouts)
        for seed in range(7):
            offer(held, [part for layout in layouts for part in gradient(seed, layout=layout)])
        return held

    def test_inner_products(self, storage, rank, dtype, layouts):
        held = self.filled(storage, rank, dtype, layouts)
        parts = [part for layout in layouts for part in gradient(99, layout=layout)]
        expected = torch.stack([direction(held, slot) @ flat(parts) for slot in range(7)])
        assert torch.allclose(held.products.dots(parts), expected, rtol=1e-5, atol=1e-4)
        index = torch.tensor([5, 0, 3])
        assert torch.allclose(held.products.dots(parts, index), expected[index], rtol=1e-5, atol=1e-4)

    def test_norms(self, storage, rank, dtype, layouts):
        held = self.filled(storage, rank, dtype, layouts)
        parts = [part for layout in layouts for part in gradient(99, layout=layout)]
        expected = torch.stack([1 / direction(held, slot).norm() for slot in range(7)])
        assert torch.allclose(held.products.inverse_norms(parts), expected, rtol=1e-5)

    def test_filled_it_holds_different_unit_directions_and_as_many_bytes(self, storage, rank, dtype, layouts):
        held = self.filled(storage, rank, dtype, layouts)
        fill_memory(held, 10, torch.device("cpu"))
        directions = torch.stack([direction(held, slot) for slot in range(10)])
        assert torch.allclose(
            directions.norm(dim=1), torch.ones(10).double(), atol=1e-5 if dtype == "float32" else 0.01
        )
        assert torch.linalg.matrix_rank(directions) == 10
        by_offers = self.filled(storage, rank, dtype, layouts)
        for seed in range(7, 10):
            offer(by_offers, [part for layout in layouts for part in gradient(seed, layout=layout)])
        assert (len(held), held.bytes) == (len(by_offers), by_offers.bytes)
        parts = [part for layout in layouts for part in gradient(99, layout=layout)]
        assert torch.allclose(held.products.dots(parts), directions @ flat(parts), rtol=1e-5, atol=1e-4)
        project(held, parts, norm(parts), "span")
        assert (directions @ flat(parts)).abs().max() < 1e-3

    def test_projection_is_exact_for_what_is_stored(self, storage, rank, dtype, layouts):
        held = self.filled(storage, rank, dtype, layouts)
        parts = [part for layout in layouts for part in gradient(99, layout=layout)]
        project(held, parts, norm(parts), "span")
        assert norm(parts) > 1
        for slot in range(7):
            stored = direction(held, slot)
            assert abs(stored @ flat(parts)) <= 1e-5 * stored.norm() * norm(parts)

    def test_frozen_parameters_take_no_part(self, storage, rank, dtype, layouts):
        """With the weight frozen, the biases alone must be orthogonal to the biases of the directions."""
        held = self.filled(storage, rank, dtype, layouts)
        parts: list = [part for layout in layouts for part in gradient(99, layout=layout)]
        sizes = [part.numel() for part in parts]
        parts[0] = None
        for _ in range(2):  # the second time with everything cached
            project(held, parts, norm(parts), "span")
        active = [(slot, direction(held, slot).split(sizes)[1:]) for slot in range(7)]
        for _, rest in active:
            along = torch.cat(rest) @ flat(parts[1:])
            assert abs(along) <= 1e-5 * norm(gradient(99))

    def test_a_full_gradient_after_a_partial_one(self, storage, rank, dtype, layouts):
        held = self.filled(storage, rank, dtype, layouts)
        parts = [part for layout in layouts for part in gradient(99, layout=layout)]
        fresh = [part.clone() for part in parts]
        project(held, [None, *(part.clone() for part in parts[1:])], 1.0, "span")
        project(held, parts, norm(parts), "span")
        project(self.filled(storage, rank, dtype, layouts), fresh, norm(fresh), "span")
        assert torch.equal(flat(parts), flat(fresh))


@pytest.mark.parametrize("kind", ["span", "cone"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-5, 1e-7])
def test_a_small_part_of_a_direction_counts_in_full_when_the_rest_is_frozen(kind, scale):
    held = memory()
    biases = torch.randn(5, 6)
    for bias in biases:
        offer(held, [torch.randn(6, 9), scale * bias[:, None]])
    update = -biases.sum(0)[:, None] + 0.1 * torch.randn(6, 1)
    project(held, [None, update], float(update.norm()), kind)
    along = biases / biases.norm(dim=1, keepdim=True) @ update[:, 0] / update.norm()
    assert along.min() >= -1e-5
    assert kind == "cone" or along.abs().max() <= 1e-5


def test_directions_that_are_zero_in_the_active_parameters_constrain_nothing():
    held = memory()
    weight, bias = torch.randn(6, 9), torch.randn(6, 1)
    offer(held, [weight, torch.zeros(6, 1)])
    offer(held, [torch.zeros(6, 9), bias])
    against = [-weight, None]
    cosines = held.products.extreme_cosines(against, norm(against), held.products.dots(against), slice(None), "signed")
    assert cosines == (pytest.approx(-1), pytest.approx(-1))
    alone = [None, bias]
    index = torch.tensor([0])
    dots = held.products.dots(alone, index)
    assert held.products.extreme_cosines(alone, norm(alone), dots, index, "signed") == (1.0, 1.0)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 5, 8, 1001])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_are_the_same_on_any_number_of_cores(threads, size, count, dtype):
    held = memory(dtype=dtype, layouts=(Layout(1, (size,)),))
    for _ in range(count):
        offer(held, [torch.randn(1, size)])
    gradient, weights = torch.randn(1, size), torch.randn(count).double()
    rows, update = held.blocks[0].used[0].double(), gradient.clone()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        dots = held.products.dots([gradient])
        held.blocks[0].subtract_([update], weights)
    finally:
        torch.set_num_threads(before)
    assert torch.allclose(dots, rows @ gradient[0].double(), atol=1e-4)
    assert torch.allclose(update[0].double(), gradient[0].double() - rows.T @ weights, atol=1e-4)


@given(st.integers(2, 40), st.integers(2, 40), st.integers(1, 5), st.integers(0, 10**6))
def test_factors_lose_nothing_of_a_matrix_of_their_rank(rows, columns, rank, seed):
    rank = min(rank, rows, columns)
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, rank, generator=generator) @ torch.randn(rank, columns, generator=generator)
    left, right = low_rank(matrix, rank)
    assert torch.dist(left.T @ right, matrix) <= 1e-5 * matrix.norm()


def test_truncation_is_the_best_of_its_rank():
    generator = torch.Generator().manual_seed(1)
    decaying = torch.randn(40, 60, generator=generator) * torch.logspace(0, -3, 60)
    for rank in (1, 2, 4, 8):
        left, right = low_rank(decaying, rank)
        best = torch.linalg.svdvals(decaying)[rank:].norm()
        assert torch.dist(left.T @ right, decaying) <= 1.01 * best


def test_single_example_gradients_of_a_linear_layer_are_stored_exactly():
    layer = torch.nn.Linear(9, 6)
    out = layer(torch.randn(1, 9))
    out[0, 2].backward()
    held = memory("factored", 1)
    parts = [layer.weight.grad, layer.bias.grad[:, None]]
    offer(held, parts)
    assert isinstance(held.blocks[0], FactoredBlock)
    assert torch.allclose(direction(held, 0), flat(parts) / norm(parts), atol=1e-6)


def test_factors_are_used_only_where_they_are_smaller():
    assert Storage("factored", 1, "float32").make(Layout(256, (784, 1))).kind == "factored"
    assert Storage("factored", 1, "float32").make(Layout(1, (64, 64))).kind == "dense"
    assert Storage("factored", 3, "float32").make(Layout(4, (4, 1))).kind == "dense"


def test_bytes_are_one_copy_of_the_directions():
    held = memory(capacity=4)
    assert held.bytes == 0
    for seed in range(9):
        offer(held, gradient(seed))
    assert held.bytes == 4 * 60 * 4
    assert memory("factored", capacity=4).blocks[0].bytes_per_direction == (6 + 10) * 4
    half = memory(dtype="bfloat16", capacity=4)
    for seed in range(9):
        offer(half, gradient(seed))
    assert half.bytes == 4 * 60 * 2


def test_directions_like_those_held_are_not_admitted():
    held = memory()
    assert offer(held, gradient(0), admit_below=0.9)
    near = [a + 0.01 * b for a, b in zip(gradient(0), gradient(1), strict=True)]
    assert not offer(held, near, admit_below=0.9)
    assert offer(held, [-part for part in gradient(0)], admit_below=0.9)
    assert offer(held, gradient(1), admit_below=0.9)
    assert len(held) == 3
    assert offer(held, near)


def offer_and_fail(held: Memory, seeds: range, error: type[BaseException]) -> None:
    journal = held.begin_journal()
    for seed in seeds:
        assert offer(held, gradient(seed), task=1) or len(held) == held.capacity
    assert 1 in held.slots.tasks
    journal.restore()
    held.end_journal()
    raise error
