"""Memories: products and projections are those of the directions as plain vectors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.memory.directions import STORAGES, find_factors, lay_out
from sfao.memory.memory import Memory, as_matrix, is_channels_last, write_matrix
from sfao.memory.slots import Slots


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_memory(kind, layout, gradients, dtype=torch.float32, rank=2):
    """Return a memory of one matrix with one direction per gradient, a list of (rows x columns) per parameter."""
    memory = Memory()
    memory.add_part(STORAGES[kind](layout, dtype, rank, torch.device("cpu")), [False] * len(layout[1]))
    encoded = [memory.encode(gradient, 1.0)[0] for gradient in gradients]
    tensors = [torch.stack(values) for values in zip(*encoded, strict=True)]
    count = len(gradients)
    memory.commit([tensors], Slots((0,) * count, tuple(range(1, count + 1)), {0: count}))
    return memory


def make_gradients(layout, count, seed=0, rank=2):
    """Return gradients of a rank that factors hold exactly."""
    rows, columns = layout
    left, right = randn(count, rows, rank, seed=seed), randn(count, rank, sum(columns), seed=seed + 1)
    return [list(torch.split(matrix, list(columns), dim=1)) for matrix in left @ right]


def as_rows(gradients, active=(True, True)):
    return torch.stack(
        [torch.cat([g.flatten() for g, on in zip(own, active, strict=True) if on]) for own in gradients]
    ).double()


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(sorted(STORAGES)),
    st.integers(1, 9),
    st.integers(3, 8),
    st.integers(3, 9),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_products_and_projection_are_those_of_plain_vectors(kind, count, rows, columns, seed, has_bias):
    layout, active = (rows, (columns, 1)), (True, has_bias)
    gradients = make_gradients(layout, count, seed)
    memory = make_memory(kind, layout, gradients)
    plain = as_rows(gradients, active)
    gradient = [randn(rows, columns, seed=seed + 2), randn(rows, 1, seed=seed + 3) if has_bias else None]
    vector = torch.cat([g.flatten() for g in gradient if g is not None]).double()
    scale = float(plain.norm() * vector.norm())
    assert torch.allclose(memory.dots(gradient), plain @ vector, atol=1e-5 * scale)
    index = torch.tensor([count - 1, 0])
    assert torch.allclose(memory.dots(gradient, index), (plain @ vector)[index], atol=1e-5 * scale)
    least, greatest = memory.extreme_dots(memory.dots(gradient), None, active)
    units = plain @ vector / plain.norm(dim=1)
    assert float(least) == pytest.approx(float(units.min()), abs=1e-5 * float(vector.norm()))
    assert float(greatest) == pytest.approx(float(units.max()), abs=1e-5 * float(vector.norm()))
    assert torch.allclose(memory.gram(active).matrix, plain @ plain.T, atol=1e-5 * float(plain.norm()) ** 2)
    memory.subtract_(gradient, torch.ones(count, dtype=torch.float64))
    found = torch.cat([g.flatten() for g in gradient if g is not None]).double()
    assert torch.allclose(found, vector - plain.sum(0), atol=1e-5 * scale)


def test_a_memory_that_spans_a_layer_says_so():
    layout = (2, (2,))
    assert make_memory("dense", layout, [[matrix] for matrix in randn(4, 2, 2)]).spans_everything()
    assert not make_memory("dense", layout, [[matrix] for matrix in randn(3, 2, 2)]).spans_everything()
    assert not make_memory("dense", layout, [[matrix] for matrix in torch.ones(5, 2, 2)]).spans_everything()


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(5, 3), (5,)], [(5, (3, 1))]),
        ([(5, 3, 2, 2), (5,), (7,), (7,)], [(5, (12, 1)), (1, (7, 7))]),
        ([(9, 2), (9, 3), (9,), (9,)], [(9, (2, 3, 1, 1))]),
        ([(), (3,)], [(1, (1, 3))]),
        ([(1, 4), (1,)], [(1, (4, 1))]),
    ],
)
def test_layouts(shapes, expected):
    assert lay_out(shapes) == expected


@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 4), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_factors_are_exact_up_to_their_rank_and_the_best_beyond(rows, columns, rank, seed):
    rank = min(rank, rows, columns)
    exact = randn(rows, rank, seed=seed) @ randn(rank, columns, seed=seed + 1)
    left, right = find_factors(exact, rank)
    assert torch.allclose(left.T @ right, exact, atol=1e-4 * float(exact.norm()))
    full = exact + 0.05 * randn(rows, columns, seed=seed + 2)
    left, right = find_factors(full, rank)
    best = torch.linalg.svdvals(full.double())[rank:].square().sum().sqrt()
    error = (left.T.double() @ right.double() - full.double()).norm()
    assert error <= 1.1 * best + 1e-4 * full.norm()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e20])
@pytest.mark.parametrize("is_stored_so", [False, True])
def test_gradients_become_matrices_and_back(channels_last, scale, is_stored_so):
    gradient = randn(4, 3, 2, 2) / scale
    if channels_last:
        gradient = gradient.to(memory_format=torch.channels_last)
    assert is_channels_last(gradient) is channels_last
    matrix = as_matrix(gradient, (4, 12), is_stored_so, scale)
    wanted = (gradient.movedim(1, -1) if is_stored_so else gradient).reshape(4, 12).double() * scale
    assert torch.allclose(matrix.double(), wanted)
    assert (matrix.data_ptr() == gradient.data_ptr()) == (scale == 1 and channels_last == is_stored_so)
    before = gradient.clone()
    matrix.mul_(2)
    write_matrix(matrix, gradient, is_stored_so, scale)
    assert torch.allclose(gradient, 2 * before)
    assert is_channels_last(gradient) is channels_last
