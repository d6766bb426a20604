"""The kernels, launched over all pieces of one kind."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from sfao.gating._device import entry_kernels, kernels, layer_kernels
from sfao.gating._device.tables import (
    Kind,
    Piece,
    Tiling,
    dot_tiles,
    entry_spans,
    layer_segments,
    left_tiles,
    update_tiles,
)

DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}
# How products are made and how large tiles are, found by trying on an H200 (WRN-28-10, 200 directions of rank 1).
# "tf32x3" is three products of tensor-float-32 parts, as exact as float32; where it has to split what it has just
# loaded once, as in the update, plain float32 ("ieee") is twice as fast: 0.60 ms to 1.24.
DOT_PRECISION, UPDATE_PRECISION = "tf32x3", "ieee"
DOT_ROWS, DOT_COLUMNS, DOT_FACTORS = 64, 64, 64
DOT_WARPS, DOT_STAGES = 4, 3
SAMPLE_FACTORS = 16
UPDATE_ROWS, UPDATE_COLUMNS, UPDATE_FACTORS = 64, 64, 16
UPDATE_WARPS, UPDATE_STAGES = 4, 3
LEFT_ROWS, LEFT_FACTORS, SCALED_PITCH = 32, 32, 16
DENSE_COLUMNS, DENSE_GROUP, DENSE_FACTORS = 1024, 8, 64
GATHERED_TILES = 32
ENTRIES = 8192


class Norms:
    """Norms of the gradients of layers, wherever they lie and however large or small their entries are."""

    def __init__(
        self, gradients: Sequence[Tensor], addresses: Tensor, layers: Sequence[int], rest: Sequence[int]
    ) -> None:
        """`layers` says to which layer each gradient belongs, `rest` which ones, by number, no other launch reaches."""
        entries, device = [gradient.numel() for gradient in gradients], addresses.device
        self._addresses = addresses
        self._sizes = torch.tensor(entries, device=device)
        self._spans = entry_spans(dict(enumerate(entries)), ENTRIES, device)
        self._rest_spans = entry_spans({number: entries[number] for number in rest}, ENTRIES, device)
        self._segments = layer_segments(entries, layers, ENTRIES, device)
        self._partial = torch.empty(len(self._spans), dtype=torch.float64, device=device)

    def measure(self, norms: Tensor, roots: Tensor, scales: Tensor, looking: Tensor, held: Tensor) -> None:
        """Norms, in float64, not finite if an entry is not; their roots and inverse roots; and who is looking."""
        entry_kernels.sum_squares[(len(self._spans),)](
            self._partial, self._spans, self._addresses, self._sizes, ENTRIES=ENTRIES, num_warps=8
        )
        layer_kernels.measure[(len(self._segments),)](
            norms, roots, scales, looking, self._partial, self._segments, held, TILES=256
        )

    def clear_rest(self, sound: Tensor) -> None:
        """Zero the gradients of the rest, unless all is sound."""
        if len(self._rest_spans):
            entry_kernels.clear[(len(self._rest_spans),)](
                self._rest_spans, self._addresses, self._sizes, sound, ENTRIES=ENTRIES
            )


class Launches:
    """The work on the pieces of one kind: inner products with a sample or with all, and the update."""

    def __init__(
        self,
        kind: Kind,
        pieces: Sequence[Piece],
        addresses: Tensor,
        held: Sequence[int],
        sampled: Sequence[int],
        dots: Tensor,
    ) -> None:
        """`held` directions are in each layer, of which `sampled` are looked at first.

        `dots` (layer x direction x factor) is where inner products go, those of the factors of a direction apart.
        """
        self.kind = kind
        self._pieces = list(pieces)
        self._addresses, self._device = addresses, addresses.device
        self._held, self._sampled = self._column(held), self._column(sampled)
        self._capacity = max(held)
        self._pitch = -(-self._capacity * kind.rank // SCALED_PITCH) * SCALED_PITCH
        self._scaled = self._room_for_scaled_lefts() if kind.factored else {}
        self._left_tiles = left_tiles(self._pieces, self._pitch, LEFT_ROWS, LEFT_FACTORS, self._device)
        table = [piece.row(self._scaled_address(piece)) for piece in self._pieces]
        self._table = torch.tensor(table, device=self._device)
        self._dots = dots
        self._all = self._tiling(held)
        self._some = self._tiling(sampled)
        rows, columns = (UPDATE_ROWS, UPDATE_COLUMNS) if kind.factored else (1, DENSE_COLUMNS)
        self._updates = update_tiles(self._pieces, rows, columns, self._device)
        entries = max(len(tiling.tiles) * tiling.step for tiling in (self._all, self._some))
        self._partial = torch.empty(entries, dtype=torch.float32, device=self._device)

    def _room_for_scaled_lefts(self) -> dict[int, Tensor]:
        """{address of left factors: where they go when scaled}"""
        rows = {piece.left.data_ptr(): piece.rows for piece in self._pieces if piece.left is not None}
        return {
            left: torch.zeros(count, self._pitch, dtype=torch.float32, device=self._device)
            for left, count in rows.items()
        }

    def _scaled_address(self, piece: Piece) -> int:
        return self._scaled[piece.left.data_ptr()].data_ptr() if piece.left is not None else 0

    def dots(self, roots: Tensor, wanted: Tensor, sample: Tensor | None = None) -> None:
        """Take inner products of the scaled gradients of the wanted layers, with all directions or with the sample.

        What is not wanted keeps the value it had.
        """
        tiling = self._all if sample is None else self._some
        counts = self._held if sample is None else self._sampled
        index = counts if sample is None else sample
        kind, grid = self.kind, (len(tiling.tiles),)
        where = (self._partial, tiling.tiles, self._table, self._addresses)
        shared = (*where, roots, wanted, index, counts, self._capacity)
        common = {"sampled": sample is not None, "dtype": DTYPES[kind.dtype], "aligned": kind.aligned}
        if kind.factored:
            kernels.dot_factored[grid](
                *shared, rank=kind.rank, precision=DOT_PRECISION, **common,
                ROWS=DOT_ROWS, COLUMNS=DOT_COLUMNS, FACTORS=tiling.step,
                num_warps=DOT_WARPS, num_stages=DOT_STAGES,
            )  # fmt: skip
        else:
            kernels.dot_dense[grid](
                *shared, **common, COLUMNS=DENSE_COLUMNS, FACTORS=tiling.step, GROUP=DENSE_GROUP, num_warps=4
            )
        kernels.gather[(len(tiling.segments),)](
            self._dots, self._partial, tiling.segments, wanted, self._capacity,
            rank=kind.rank, RANKS=self._dots.shape[2], FACTORS=tiling.step, TILES=GATHERED_TILES, num_warps=4,
        )  # fmt: skip

    def update(self, actions: Tensor, scales: Tensor, weights: Tensor) -> None:
        """Project, clear or leave alone the gradients of every layer, as its action says.

        `scales` are the roots of their norms.
        """
        kind, grid = self.kind, (len(self._updates),)
        dtype = DTYPES[kind.dtype]
        if kind.factored:
            kernels.scale_lefts[(len(self._left_tiles),)](
                self._left_tiles, self._table, actions, weights, self._held, self._capacity, self._pitch,
                rank=kind.rank, dtype=dtype, ROWS=LEFT_ROWS, FACTORS=LEFT_FACTORS,
            )  # fmt: skip
            kernels.update_factored[grid](
                self._updates, self._table, self._addresses, actions, scales, self._held, self._pitch,
                rank=kind.rank, precision=UPDATE_PRECISION, dtype=dtype, aligned=kind.aligned,
                ROWS=UPDATE_ROWS, COLUMNS=UPDATE_COLUMNS, FACTORS=UPDATE_FACTORS,
                num_warps=UPDATE_WARPS, num_stages=UPDATE_STAGES,
            )  # fmt: skip
        else:
            kernels.update_dense[grid](
                self._updates, self._table, self._addresses, actions, scales, weights, self._held, self._capacity,
                dtype=dtype, aligned=kind.aligned, COLUMNS=DENSE_COLUMNS, GROUP=DENSE_GROUP, num_warps=4,
            )  # fmt: skip

    def _tiling(self, directions: Sequence[int]) -> Tiling:
        factors = [count * self.kind.rank for count in directions]
        most = triton.next_power_of_2(max(factors))
        if self.kind.factored:
            step, rows, columns = min(DOT_FACTORS, max(SAMPLE_FACTORS, most)), DOT_ROWS, None
        else:
            step, rows, columns = min(DENSE_FACTORS, max(DENSE_GROUP, most)), 1, DENSE_COLUMNS
        return dot_tiles(self._pieces, factors, rows, columns, step, self._device)

    def _column(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self._device)
