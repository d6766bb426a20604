"""The part of a gradient that each program of a kernel works on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from sfao.gating._block import ALIGNED_BYTES, Block
from sfao.gating._device.columns import LAYER_WIDTH, SEGMENT_WIDTH, SPAN_WIDTH, TILE_WIDTH

#: Entries that a vectorised load takes at once, in any dtype that directions are held in.
ALIGNED_ENTRIES = 8


@dataclass(frozen=True)
class Kind:
    """Pieces that one launch can serve."""

    factored: bool
    rank: int
    dtype: torch.dtype
    aligned: bool


@dataclass(frozen=True)
class Piece:
    """The gradient of one parameter beside the directions held of it."""

    layer: int
    #: Which of all gradients.
    gradient: int
    rows: int
    columns: int
    right: Tensor
    left: Tensor | None

    def kind(self, address: int) -> Kind:
        rank = 1 if self.left is None else self.right.shape[1]
        aligned = self.columns % ALIGNED_ENTRIES == 0 and all(
            pointer % ALIGNED_BYTES == 0 for pointer in (address, self.right.data_ptr())
        )
        return Kind(self.left is not None, rank, self.right.dtype, aligned)

    def row(self, scaled: int) -> list[int]:
        left = 0 if self.left is None else self.left.data_ptr()
        return [self.gradient, self.right.data_ptr(), left, self.rows, self.columns, self.layer, scaled]


def pieces_of(layer: int, block: Block, gradients: Sequence[int | None]) -> Iterator[Piece]:
    """The pieces of a block whose parameters have these gradients, by number; none for parameters without one."""
    layout = block.layout
    tensors = block.kernel_tensors
    if tensors is None:
        raise ValueError(f"`storage` must be one that kernels read, got {block.kind!r}")
    left, rights = tensors
    for number, columns, right in zip(gradients, layout.columns, rights, strict=True):
        if number is not None:
            rows, width = (layout.rows, columns) if left is not None else (1, layout.rows * columns)
            yield Piece(layer, number, rows, width, right, left)


@dataclass(frozen=True)
class Tiling:
    """The programs of a launch, and which of them add up to the inner products of which layer."""

    tiles: Tensor
    segments: Tensor
    #: Factors a tile.
    step: int


def dot_tiles(
    pieces: Sequence[Piece], factors: Sequence[int], rows: int, columns: int | None, step: int, device: torch.device
) -> Tiling:
    """Tiles of some rows (and columns) for every `step` factors, ordered by layer and factor; segments of them.

    `factors` is how many of them each layer has.
    """
    parts: dict[tuple[int, int], list[list[int]]] = {}
    for number, piece in enumerate(pieces):
        for first in range(0, factors[piece.layer], step):
            corners = parts.setdefault((piece.layer, first), [])
            corners += [[number, row, column, first] for row, column in _corners(piece, rows, columns)]
    tiles: list[list[int]] = []
    segments: list[list[int]] = []
    for (layer, first), corners in sorted(parts.items()):
        segments.append([layer, first, len(tiles), len(tiles) + len(corners)])
        tiles += corners
    return Tiling(_table(tiles, TILE_WIDTH.value, device), _table(segments, SEGMENT_WIDTH.value, device), step)


def update_tiles(pieces: Sequence[Piece], rows: int, columns: int, device: torch.device) -> Tensor:
    tiles = [[n, row, column, 0] for n, piece in enumerate(pieces) for row, column in _corners(piece, rows, columns)]
    return _table(tiles, TILE_WIDTH.value, device)


def left_tiles(pieces: Sequence[Piece], factors: int, rows: int, step: int, device: torch.device) -> Tensor:
    """Tiles over the left factors; parameters of one matrix share theirs, so once for all of them."""
    first: dict[int, int] = {}
    for number, piece in enumerate(pieces):
        if piece.left is not None:
            first.setdefault(piece.left.data_ptr(), number)
    tiles = [
        [number, row, 0, start]
        for number in first.values()
        for row in range(0, pieces[number].rows, rows)
        for start in range(0, factors, step)
    ]
    return _table(tiles, TILE_WIDTH.value, device)


def entry_spans(entries: Mapping[int, int], step: int, device: torch.device) -> Tensor:
    """Spans (gradient, first entry) over gradients, by number, of so many entries, in their order."""
    return _table(
        [[n, first] for n, count in entries.items() for first in range(0, count, step)], SPAN_WIDTH.value, device
    )


def layer_segments(entries: Sequence[int], layers: Sequence[int], step: int, device: torch.device) -> Tensor:
    """The first and past the last span of each layer, for gradients that belong to these layers, in order."""
    ends = [0] * (1 + max(layers))
    for count, layer in zip(entries, layers, strict=True):
        ends[layer] += -(-count // step)
    totals = list(accumulate(ends))
    return _table([[end - count, end] for end, count in zip(totals, ends, strict=True)], LAYER_WIDTH.value, device)


def _corners(piece: Piece, rows: int, columns: int | None) -> list[tuple[int, int]]:
    across = range(0, piece.columns, columns) if columns else (0,)
    return [(row, column) for row in range(0, piece.rows, rows) for column in across]


def _table(rows: list[list[int]], width: int, device: torch.device) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64, device=device).view(-1, width)
