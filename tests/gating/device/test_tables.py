"""The tiles of a launch: every entry is worked on once, whatever the shapes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfao.gating._device.tables import (
    Piece,
    dot_tiles,
    entry_spans,
    layer_segments,
    left_tiles,
    pieces_of,
    update_tiles,
)
from sfao.gating._layout import lay_out
from sfao.gating.storage import Storage

CPU = torch.device("cpu")
shapes = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=4)


def pieces(of_shapes: list[tuple[int, int]]) -> list[Piece]:
    """A piece, of a layer of its own, of each shape, with directions of rank 1."""
    return [
        Piece(number, number, rows, columns, torch.zeros(1, 1, columns), torch.zeros(1, 1, rows))
        for number, (rows, columns) in enumerate(of_shapes)
    ]


@given(shapes)
def test_an_update_reaches_every_entry_once(of_shapes):
    touched = [torch.zeros(shape) for shape in of_shapes]
    for piece, row, column, _ in update_tiles(pieces(of_shapes), 16, 8, CPU).tolist():
        touched[piece][row : row + 16, column : column + 8] += 1
    assert all((entries == 1).all() for entries in touched)


@given(shapes, st.lists(st.integers(1, 70), min_size=4, max_size=4))
def test_inner_products_take_every_entry_with_every_factor_once(of_shapes, factors):
    tiling = dot_tiles(pieces(of_shapes), factors, 16, 8, 32, CPU)
    touched = [torch.zeros(factors[number], *shape) for number, shape in enumerate(of_shapes)]
    tiles = tiling.tiles.tolist()
    for layer, first, begin, end in tiling.segments.tolist():
        for piece, row, column, factor in tiles[begin:end]:
            assert piece == layer
            assert factor == first
            touched[piece][factor : factor + 32, row : row + 16, column : column + 8] += 1
    assert all((entries == 1).all() for entries in touched)
    assert sum(end - begin for *_, begin, end in tiling.segments.tolist()) == len(tiles)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 2)), min_size=1, max_size=6))
def test_norms_take_every_entry_of_a_layer_once(gradients):
    entries = [count for count, _ in gradients]
    layers = sorted(layer for _, layer in gradients)
    tiles = entry_spans(dict(enumerate(entries)), 64, CPU).tolist()
    segments = layer_segments(entries, layers, 64, CPU).tolist()
    assert len(segments) == max(layers) + 1
    taken = dict.fromkeys(layers, 0)
    for layer, (begin, end) in enumerate(segments):
        for gradient, first in tiles[begin:end]:
            assert layers[gradient] == layer
            taken[layer] += min(64, entries[gradient] - first)
    assert taken == {layer: sum(n for n, of in zip(entries, layers, strict=True) if of == layer) for layer in layers}
    assert segments[-1][1] == len(tiles)


def test_parameters_of_one_matrix_share_their_left_factors():
    (layout,) = lay_out([(20, 9), (20,)])
    block = Storage("factored", 2, "float32").make(layout)
    block.reserve(3)
    block.resize(3)
    weight, bias = pieces_of(0, block, [4, 7])
    assert (weight.gradient, weight.rows, weight.columns) == (4, 20, 9)
    assert (bias.gradient, bias.rows, bias.columns) == (7, 20, 1)
    assert left_tiles([weight, bias], 6, 16, 4, CPU).tolist() == [
        [0, 0, 0, 0],
        [0, 0, 0, 4],
        [0, 16, 0, 0],
        [0, 16, 0, 4],
    ]
    (only,) = pieces_of(0, block, [None, 0])
    assert only.columns == 1


@pytest.mark.parametrize(("columns", "address", "aligned"), [(16, 64, True), (16, 68, False), (12, 64, False)])
def test_what_a_vectorised_load_needs(columns, address, aligned):
    piece = Piece(0, 0, 3, columns, torch.zeros(2, 1, columns), torch.zeros(2, 1, 3))
    assert piece.kind(address).aligned is aligned
