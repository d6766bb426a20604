"""Triton kernels over the pieces of all layers: inner products with the directions, and the update off them.

A piece is the gradient of one parameter as a matrix. Its sizes and the addresses of its directions are a row of a table
(`columns.py` names them), where the gradients lie is in another, and a program of a kernel is a row of a third
that says which part of which piece it works on: one launch serves all layers whatever their shapes.

Gradients are scaled to norm 1 as they are read: twice by the inverse root of the norm, which is in the range of float32
where the inverse may not be; and what is subtracted is scaled back twice by the root.
"""

import triton
import triton.language as tl

from sfao.gating._device.columns import (
    CLEAR,
    KEEP,
    PIECE_COLUMNS,
    PIECE_GRADIENT,
    PIECE_LAYER,
    PIECE_LEFT,
    PIECE_RIGHT,
    PIECE_ROWS,
    PIECE_SCALED_LEFT,
    PIECE_WIDTH,
    PROJECT,
    SEGMENT_BEGIN,
    SEGMENT_END,
    SEGMENT_FACTOR,
    SEGMENT_LAYER,
    SEGMENT_WIDTH,
    TILE_COLUMN,
    TILE_FACTOR,
    TILE_PIECE,
    TILE_ROW,
    TILE_WIDTH,
)
from sfao.gating._device.entry_kernels import _point_to_gradient, _point_to_matrix


@triton.jit
def _find_piece(tiles, pieces):
    """The piece that a program works on, and its layer."""
    piece = tl.load(tiles + tl.program_id(0).to(tl.int64) * TILE_WIDTH + TILE_PIECE).to(tl.int64)
    return piece, tl.load(pieces + piece * PIECE_WIDTH + PIECE_LAYER)


@triton.jit
def _load_width(pieces, piece, aligned: tl.constexpr):
    width = tl.load(pieces + piece * PIECE_WIDTH + PIECE_COLUMNS)
    return tl.multiple_of(width, 4) if aligned else width


@triton.jit
def _find_slots(sample, layer, numbers, counted, capacity, rank: tl.constexpr, sampled: tl.constexpr):
    """The factors that `numbers` stand for: themselves, or those of the directions of the sample."""
    if sampled:
        chosen = tl.load(sample + layer * capacity + numbers // rank, mask=counted, other=0)
        return chosen * rank + numbers % rank
    return numbers


@triton.jit
def _multiply(
    places, columns_of, there, counted, width, root, scaled: tl.constexpr, precision: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, FACTORS: tl.constexpr,
):  # fmt: skip
    """The gradient, at norm 1, times right factors."""
    images = tl.zeros((FACTORS, ROWS), dtype=tl.float32)
    for start in range(0, width, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        inside = columns < width
        g = tl.load(places + columns[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        r = tl.load(columns_of + columns[None, :], mask=counted[:, None] & inside[None, :], other=0.0)
        if scaled:
            g = g * root * root
        images = tl.dot(r.to(tl.float32), tl.trans(g), images, input_precision=precision)
    return images if scaled else images * (root * root)


@triton.jit
def dot_factored(
    partial, tiles, pieces, addresses, roots, wanted, sample, counts, capacity,
    rank: tl.constexpr, sampled: tl.constexpr, dtype: tl.constexpr, aligned: tl.constexpr, precision: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, FACTORS: tl.constexpr,
):  # fmt: skip
    """partial[tile, f] = sum over some rows of left[f] . (gradient right[f])."""
    tile = tl.program_id(0).to(tl.int64)
    piece, layer = _find_piece(tiles, pieces)
    if tl.load(wanted + layer) == 0:
        return
    height = tl.load(pieces + piece * PIECE_WIDTH + PIECE_ROWS)
    width = _load_width(pieces, piece, aligned)
    gradient = _point_to_gradient(addresses, tl.load(pieces + piece * PIECE_WIDTH + PIECE_GRADIENT), aligned)
    right = _point_to_matrix(tl.load(pieces + piece * PIECE_WIDTH + PIECE_RIGHT), dtype, aligned)
    left = _point_to_matrix(tl.load(pieces + piece * PIECE_WIDTH + PIECE_LEFT), dtype, False)
    root = tl.load(roots + layer)

    rows = tl.load(tiles + tile * TILE_WIDTH + TILE_ROW) + tl.arange(0, ROWS)
    factors = tl.load(tiles + tile * TILE_WIDTH + TILE_FACTOR) + tl.arange(0, FACTORS)
    there = rows < height
    counted = factors < tl.load(counts + layer) * rank
    slots = _find_slots(sample, layer, factors, counted, capacity, rank, sampled).to(tl.int64)
    rows = rows.to(tl.int64)
    places = gradient + rows[:, None] * width
    columns_of = right + slots[:, None] * width
    # Scaling while reading is exact for entries of any size, scaling afterwards is faster.
    if (root < 1e-7) | (root > 1e7):
        images = _multiply(places, columns_of, there, counted, width, root, True, precision, ROWS, COLUMNS, FACTORS)
    else:
        images = _multiply(places, columns_of, there, counted, width, root, False, precision, ROWS, COLUMNS, FACTORS)
    lefts = tl.load(left + slots[:, None] * height + rows[None, :], mask=counted[:, None] & there[None, :], other=0.0)
    sums = tl.sum(images * lefts.to(tl.float32), axis=1)
    tl.store(partial + tile * FACTORS + tl.arange(0, FACTORS), sums)


@triton.jit
def dot_dense(
    partial, tiles, pieces, addresses, roots, wanted, sample, counts, capacity,
    sampled: tl.constexpr, dtype: tl.constexpr, aligned: tl.constexpr,
    COLUMNS: tl.constexpr, FACTORS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """partial[tile, k] = direction k . gradient over some columns, for the FACTORS directions of the tile."""
    tile = tl.program_id(0).to(tl.int64)
    piece, layer = _find_piece(tiles, pieces)
    if tl.load(wanted + layer) == 0:
        return
    width = _load_width(pieces, piece, aligned)
    gradient = _point_to_gradient(addresses, tl.load(pieces + piece * PIECE_WIDTH + PIECE_GRADIENT), aligned)
    directions = _point_to_matrix(tl.load(pieces + piece * PIECE_WIDTH + PIECE_RIGHT), dtype, aligned)
    root = tl.load(roots + layer)
    columns = tl.load(tiles + tile * TILE_WIDTH + TILE_COLUMN) + tl.arange(0, COLUMNS)
    inside = columns < width
    g = tl.load(gradient + columns, mask=inside, other=0.0) * root * root
    first = tl.load(tiles + tile * TILE_WIDTH + TILE_FACTOR)
    count = tl.load(counts + layer)
    for start in range(0, FACTORS, GROUP):
        numbers = first + start + tl.arange(0, GROUP)
        counted = numbers < count
        slots = _find_slots(sample, layer, numbers, counted, capacity, 1, sampled).to(tl.int64)
        b = tl.load(
            directions + slots[:, None] * width + columns[None, :], mask=counted[:, None] & inside[None, :], other=0.0
        )
        sums = tl.sum(b.to(tl.float32) * g[None, :], axis=1)
        tl.store(partial + tile * FACTORS + start + tl.arange(0, GROUP), sums)


@triton.jit
def gather(
    dots, partial, segments, wanted, capacity,
    rank: tl.constexpr, RANKS: tl.constexpr, FACTORS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """dots[layer, direction, factor] = the sum of a segment of tiles, in float64 and always in the same order."""
    segment = tl.program_id(0).to(tl.int64)
    layer = tl.load(segments + segment * SEGMENT_WIDTH + SEGMENT_LAYER)
    if tl.load(wanted + layer) == 0:
        return
    first = tl.load(segments + segment * SEGMENT_WIDTH + SEGMENT_FACTOR)
    begin = tl.load(segments + segment * SEGMENT_WIDTH + SEGMENT_BEGIN)
    end = tl.load(segments + segment * SEGMENT_WIDTH + SEGMENT_END)
    factors = tl.arange(0, FACTORS)
    total = tl.zeros((FACTORS,), dtype=tl.float64)
    for start in range(begin, end, TILES):
        numbers = start + tl.arange(0, TILES)
        values = tl.load(
            partial + numbers[:, None] * FACTORS + factors[None, :], mask=numbers[:, None] < end, other=0.0
        )
        total += tl.sum(values.to(tl.float64), axis=0)
    numbers = first + tl.arange(0, FACTORS)
    places = layer * capacity * RANKS + numbers // rank * RANKS + numbers % rank
    tl.store(dots + places, total, mask=numbers < capacity * rank)


@triton.jit
def scale_lefts(
    tiles, pieces, actions, weights, counts, capacity, pitch,
    rank: tl.constexpr, dtype: tl.constexpr, ROWS: tl.constexpr, FACTORS: tl.constexpr,
):  # fmt: skip
    """Left factors times the weights of their directions, a row of factors for every row of the gradient."""
    tile = tl.program_id(0).to(tl.int64)
    piece, layer = _find_piece(tiles, pieces)
    if tl.load(actions + layer) != PROJECT:
        return
    height = tl.load(pieces + piece * PIECE_WIDTH + PIECE_ROWS)
    left = _point_to_matrix(tl.load(pieces + piece * PIECE_WIDTH + PIECE_LEFT), dtype, False)
    scaled = _point_to_matrix(tl.load(pieces + piece * PIECE_WIDTH + PIECE_SCALED_LEFT), tl.float32, True)
    rows = (tl.load(tiles + tile * TILE_WIDTH + TILE_ROW) + tl.arange(0, ROWS)).to(tl.int64)
    factors = tl.load(tiles + tile * TILE_WIDTH + TILE_FACTOR) + tl.arange(0, FACTORS)
    there, counted = rows < height, factors < tl.load(counts + layer) * rank
    w = tl.load(weights + layer * capacity + factors // rank, mask=counted, other=0.0)
    lefts = tl.load(left + factors[:, None] * height + rows[None, :], mask=counted[:, None] & there[None, :], other=0.0)
    values = tl.trans(lefts.to(tl.float32) * w[:, None])
    tl.store(
        scaled + rows[:, None] * pitch + factors[None, :], values, mask=there[:, None] & (factors < pitch)[None, :]
    )


@triton.jit
def update_factored(
    tiles, pieces, addresses, actions, scales, counts, pitch,
    rank: tl.constexpr, dtype: tl.constexpr, aligned: tl.constexpr, precision: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, FACTORS: tl.constexpr,
):  # fmt: skip
    """gradient -= norm * scaled left factors times right factors, or 0, or untouched."""
    tile = tl.program_id(0).to(tl.int64)
    piece, layer = _find_piece(tiles, pieces)
    action = tl.load(actions + layer)
    if action == KEEP:
        return
    height = tl.load(pieces + piece * PIECE_WIDTH + PIECE_ROWS)
    width = _load_width(pieces, piece, aligned)
    gradient = _point_to_gradient(addresses, tl.load(pieces + piece * PIECE_WIDTH + PIECE_GRADIENT), aligned)
    rows = (tl.load(tiles + tile * TILE_WIDTH + TILE_ROW) + tl.arange(0, ROWS)).to(tl.int64)
    columns = tl.load(tiles + tile * TILE_WIDTH + TILE_COLUMN) + tl.arange(0, COLUMNS)
    there, inside = rows < height, columns < width
    place = gradient + rows[:, None] * width + columns[None, :]
    within = there[:, None] & inside[None, :]
    if action == CLEAR:
        tl.store(place, tl.zeros((ROWS, COLUMNS), dtype=tl.float32), mask=within)
        return
    right = _point_to_matrix(tl.load(pieces + piece * PIECE_WIDTH + PIECE_RIGHT), dtype, aligned)
    scaled = _point_to_matrix(tl.load(pieces + piece * PIECE_WIDTH + PIECE_SCALED_LEFT), tl.float32, True)
    total = tl.load(counts + layer) * rank
    combination = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, total, FACTORS):
        factors = start + tl.arange(0, FACTORS)
        lefts = tl.load(
            scaled + rows[:, None] * pitch + factors[None, :],
            mask=there[:, None] & (factors < pitch)[None, :],
            other=0.0,
        )
        counted = factors < total
        r = tl.load(
            right + factors[:, None] * width + columns[None, :], mask=counted[:, None] & inside[None, :], other=0.0
        )
        combination = tl.dot(lefts, r.to(tl.float32), combination, input_precision=precision)
    g = tl.load(place, mask=within, other=0.0)
    scale = tl.load(scales + layer)
    tl.store(place, g - combination * scale * scale, mask=within)


@triton.jit
def update_dense(
    tiles, pieces, addresses, actions, scales, weights, counts, capacity,
    dtype: tl.constexpr, aligned: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """gradient -= norm * sum over k of weight[k] direction[k], or 0, or untouched."""
    tile = tl.program_id(0).to(tl.int64)
    piece, layer = _find_piece(tiles, pieces)
    action = tl.load(actions + layer)
    if action == KEEP:
        return
    width = _load_width(pieces, piece, aligned)
    gradient = _point_to_gradient(addresses, tl.load(pieces + piece * PIECE_WIDTH + PIECE_GRADIENT), aligned)
    columns = tl.load(tiles + tile * TILE_WIDTH + TILE_COLUMN) + tl.arange(0, COLUMNS)
    inside = columns < width
    if action == CLEAR:
        tl.store(gradient + columns, tl.zeros((COLUMNS,), dtype=tl.float32), mask=inside)
        return
    directions = _point_to_matrix(tl.load(pieces + piece * PIECE_WIDTH + PIECE_RIGHT), dtype, aligned)
    count = tl.load(counts + layer)
    combination = tl.zeros((COLUMNS,), dtype=tl.float32)
    for start in range(0, count, GROUP):
        numbers = (start + tl.arange(0, GROUP)).to(tl.int64)
        counted = numbers < count
        w = tl.load(weights + layer * capacity + numbers, mask=counted, other=0.0)
        b = tl.load(
            directions + numbers[:, None] * width + columns[None, :], mask=counted[:, None] & inside[None, :], other=0.0
        )
        combination += tl.sum(b.to(tl.float32) * w[:, None], axis=0)
    g = tl.load(gradient + columns, mask=inside, other=0.0)
    scale = tl.load(scales + layer)
    tl.store(gradient + columns, g - combination * scale * scale, mask=inside)
