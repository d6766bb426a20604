"""The columns of the tables that kernels read, by name: kernels see globals only if they are `tl.constexpr`."""

import triton.language as tl

from sfao.gating.rule import MAX_OPTIONS, MAX_STATES

#: A piece: the gradient of one parameter beside the directions held of it.
PIECE_WIDTH = tl.constexpr(7)
PIECE_GRADIENT = tl.constexpr(0)
PIECE_RIGHT = tl.constexpr(1)  # right factors, or whole directions
PIECE_LEFT = tl.constexpr(2)
PIECE_ROWS = tl.constexpr(3)
PIECE_COLUMNS = tl.constexpr(4)
PIECE_LAYER = tl.constexpr(5)
PIECE_SCALED_LEFT = tl.constexpr(6)

#: A tile: the part of a piece that one program works on.
TILE_WIDTH = tl.constexpr(4)
TILE_PIECE = tl.constexpr(0)
TILE_ROW = tl.constexpr(1)
TILE_COLUMN = tl.constexpr(2)
TILE_FACTOR = tl.constexpr(3)  # or the first direction

#: A segment: the tiles that add up to inner products of one layer.
SEGMENT_WIDTH = tl.constexpr(4)
SEGMENT_LAYER = tl.constexpr(0)
SEGMENT_FACTOR = tl.constexpr(1)
SEGMENT_BEGIN = tl.constexpr(2)
SEGMENT_END = tl.constexpr(3)

#: A span: some entries of one gradient.
SPAN_WIDTH = tl.constexpr(2)
SPAN_GRADIENT = tl.constexpr(0)
SPAN_ENTRY = tl.constexpr(1)

#: The spans of one layer.
LAYER_WIDTH = tl.constexpr(2)
LAYER_BEGIN = tl.constexpr(0)
LAYER_END = tl.constexpr(1)

#: What is to be done with the gradient of a layer.
KEEP = tl.constexpr(0)
PROJECT = tl.constexpr(1)
CLEAR = tl.constexpr(2)

#: Codes of decisions, as in `gating/decision.py`.
ACCEPTED = tl.constexpr(0)
PROJECTED = tl.constexpr(1)
DISCARDED = tl.constexpr(2)
ZERO = tl.constexpr(3)
CODES = tl.constexpr(4)

#: The options and the state of a rule, one column each.
RULE_OPTIONS = tl.constexpr(MAX_OPTIONS)
RULE_STATES = tl.constexpr(MAX_STATES)
