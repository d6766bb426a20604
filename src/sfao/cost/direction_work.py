"""The work of a gate with directions that projects at every step, and made-up layers that show its speed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, ClassVar

import torch

from sfao.cost.filling import fill_memory
from sfao.cost.gate_work import Holding, Shapes
from sfao.cost.memory_size import MemorySize, count_memory_bytes
from sfao.cost.training import THRESHOLDS
from sfao.gating._layout import Layout, lay_out
from sfao.gating._products import SMALL_WORK
from sfao.gating.storage import Storage
from sfao.optim.gate import Gate

#: Bytes of directions that a layer made up for this holds at most, and entries it works on at least.
MOST_BYTES, LEAST_ENTRIES = 64 * 10**6, 2**22
#: Entries of directions below which a layer has next to no work as it is.
FEW_ENTRIES = 2**16


@dataclass(frozen=True)
class DirectionHolding:
    """The way to hold the directions of each layer, and the number that are sampled."""

    capacity: int
    storage: Storage
    samples: int

    memory: ClassVar[str] = "directions"
    held: ClassVar[str] = "directions"
    action: ClassVar[str] = "projects"

    @staticmethod
    def of(options: dict[str, Any]) -> "DirectionHolding":
        """Return the holding that these options, all of them set, name."""
        return DirectionHolding(options["capacity"], Storage.of(options), options["samples"])

    @property
    def options(self) -> dict[str, Any]:
        return {"capacity": self.capacity, **self.storage.options, "samples": self.samples}

    def __str__(self) -> str:
        return f"{self.storage}, {self.capacity} directions a layer"

    def count_bytes(self, groups: Sequence[dict[str, Any]]) -> MemorySize:
        return count_memory_bytes(groups, self.capacity, self.storage)

    def count_work(self, shapes: Shapes) -> dict[str, float]:
        return layer_work(shapes, self)

    def shrink(self, shapes: Shapes) -> list[tuple[int, ...]]:
        return tiny_layer(shapes, self)

    def choose_samples(self, layers: Sequence[Shapes]) -> dict[str, tuple[Shapes, Holding]]:
        largest = _largest(layers, self)
        return {kind: (shapes_of(layout), _reduce_holding(layout, self)) for kind, layout in largest.items()}

    def make_gate(self, groups: list[dict[str, Any]], device: torch.device) -> Gate:
        gate = Gate(
            groups,
            **self.options,
            accept_above=THRESHOLDS["project"]["accept_above"],
            discard_below=THRESHOLDS["project"]["discard_below"],
        )
        for number, layer in enumerate(gate.layers):
            fill_memory(layer.memory, self.capacity, device, seed=number)
        return gate


def layer_work(shapes: Shapes, holding: DirectionHolding) -> dict[str, float]:
    """Return the work of one layer: comparing with a sample and with all directions, and subtracting.

    A small layer looks at all directions at once; one that is spanned by its directions is set to zero.
    """
    of_layer, count = lay_out(shapes), holding.capacity
    size = sum(layout.size for layout in of_layer)
    passes = count if count >= size else 2 * count
    if holding.samples < count and count * size > SMALL_WORK:
        passes += holding.samples
    work: dict[str, float] = {}
    for layout in of_layer:
        block = holding.storage.make(layout)
        work[block.kind] = work.get(block.kind, 0.0) + passes * layout.size * block.work_per_entry
    return work


def tiny_layer(shapes: Shapes, holding: DirectionHolding) -> list[tuple[int, ...]]:
    """Return as many parameters of the same kinds, just large enough that the directions do not span them."""
    size = sum(layout.size for layout in lay_out(shapes))
    if holding.capacity >= size or holding.capacity * size <= FEW_ENTRIES:
        return list(shapes)
    side = max(isqrt(holding.capacity) + 2, 2 * holding.storage.rank + 2)
    vector = side if any(len(shape) > 1 for shape in shapes) else side**2
    tiny: list[tuple[int, ...]] = [(side, side) if len(shape) > 1 else (vector,) for shape in shapes]
    return tiny if sum(layout.size for layout in lay_out(tiny)) < size else list(shapes)


def _largest(layers: Sequence[Shapes], holding: DirectionHolding) -> dict[str, Layout]:
    """Return the largest matrix of each kind of block that there is, or one wide enough to be timed."""
    found: dict[str, Layout] = {}
    for layout in (layout for shapes in layers for layout in lay_out(shapes)):
        kind = holding.storage.make(layout).kind
        if kind not in found or layout.size > found[kind].size:
            found[kind] = layout
    return {kind: _widen(layout, -(-LEAST_ENTRIES // holding.capacity)) for kind, layout in found.items()}


def _widen(layout: Layout, entries: int) -> Layout:
    first, *others = layout.columns
    return Layout(layout.rows, (first * max(1, entries // layout.size), *others))


def _reduce_holding(layout: Layout, holding: DirectionHolding) -> DirectionHolding:
    """Return a holding of fewer directions where rows would be many bytes, with as large a share of them sampled."""
    most = max(2, MOST_BYTES // holding.storage.bytes_per_direction([layout]))
    if holding.capacity <= most:
        return holding
    sampled = max(1, round(holding.samples * most / holding.capacity))
    return replace(holding, capacity=most, samples=min(sampled, most))


def shapes_of(layout: Layout) -> list[tuple[int, ...]]:
    """Return the shapes of parameters with this layout."""
    if layout.rows == 1:
        return [(columns,) for columns in layout.columns]
    return [(layout.rows,) if columns == 1 else (layout.rows, columns) for columns in layout.columns]
