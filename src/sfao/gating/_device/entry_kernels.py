"""Triton kernels over the entries of gradients, whatever their shapes: where they lie, their squares, clearing them."""

import triton
import triton.language as tl

from sfao.gating._device.columns import SPAN_ENTRY, SPAN_GRADIENT, SPAN_WIDTH


@triton.jit
def _point_to_matrix(address, dtype: tl.constexpr, aligned: tl.constexpr):
    pointer = address.to(tl.pointer_type(dtype))
    return tl.multiple_of(pointer, 16) if aligned else pointer


@triton.jit
def _point_to_gradient(addresses, number, aligned: tl.constexpr):
    return _point_to_matrix(tl.load(addresses + number), tl.float32, aligned)


@triton.jit(do_not_specialize=["first", "count", "a", "b", "c", "d", "e", "f", "g", "h"])
def point(table, first, count, a, b, c, d, e, f, g, h):
    """table[first:] = some addresses. They come as arguments, so that a graph in which this is captured knows them."""
    for_number = table + first
    tl.store(for_number, a)
    tl.store(for_number + 1, b, mask=first + 1 < count)
    tl.store(for_number + 2, c, mask=first + 2 < count)
    tl.store(for_number + 3, d, mask=first + 3 < count)
    tl.store(for_number + 4, e, mask=first + 4 < count)
    tl.store(for_number + 5, f, mask=first + 5 < count)
    tl.store(for_number + 6, g, mask=first + 6 < count)
    tl.store(for_number + 7, h, mask=first + 7 < count)


@triton.jit
def sum_squares(partial, spans, addresses, sizes, ENTRIES: tl.constexpr):
    """partial[tile] = the sum of the squares of some entries of a gradient, in float64: whatever their size."""
    tile = tl.program_id(0).to(tl.int64)
    number = tl.load(spans + tile * SPAN_WIDTH + SPAN_GRADIENT)
    gradient = _point_to_gradient(addresses, number, False)
    places = tl.load(spans + tile * SPAN_WIDTH + SPAN_ENTRY) + tl.arange(0, ENTRIES)
    entries = tl.load(gradient + places, mask=places < tl.load(sizes + number), other=0.0).to(tl.float64)
    tl.store(partial + tile, tl.sum(entries * entries, axis=0))


@triton.jit
def clear(spans, addresses, sizes, sound, ENTRIES: tl.constexpr):
    """Gradients to zero, unless all is sound."""
    if tl.load(sound) != 0:
        return
    tile = tl.program_id(0).to(tl.int64)
    number = tl.load(spans + tile * SPAN_WIDTH + SPAN_GRADIENT)
    gradient = _point_to_gradient(addresses, number, False)
    places = tl.load(spans + tile * SPAN_WIDTH + SPAN_ENTRY) + tl.arange(0, ENTRIES)
    tl.store(gradient + places, tl.zeros((ENTRIES,), dtype=tl.float32), mask=places < tl.load(sizes + number))
