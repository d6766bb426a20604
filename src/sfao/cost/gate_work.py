"""The work of a gate that projects at every step: its amount and its speed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sfao.gating._layout import lay_out
from sfao.gating._products import SMALL_WORK
from sfao.gating.storage import STORAGES, Storage

Shapes = Sequence[tuple[int, ...]]
#: By kind of block: bytes of directions read by dense ones, floating-point operations of factored ones.
Work = Mapping[str, float]


@dataclass(frozen=True)
class Holding:
    """The way to hold the directions of each layer, and the number that are sampled."""

    capacity: int
    storage: Storage
    samples: int


@dataclass(frozen=True)
class Pace:
    """The speed of a kind of block: bytes or operations per millisecond."""

    kind: str
    a_ms: float

    @staticmethod
    def through(kind: str, large: tuple[Work, float], small: tuple[Work, float]) -> "Pace":
        """Return the pace from the work and the milliseconds of two layers: their common time is not work."""
        (more, longer), (less, shorter) = large, small
        if longer <= shorter:  # only noise can do that
            return Pace(kind, more[kind] / longer)
        return Pace(kind, (more[kind] - less.get(kind, 0.0)) / (longer - shorter))

    def ms(self, work: Work) -> float:
        return work.get(self.kind, 0.0) / self.a_ms

    def __str__(self) -> str:
        return f"{self.a_ms / 1e6:.1f} G{STORAGES[self.kind].work_unit}/s"


def layer_work(shapes: Shapes, holding: Holding) -> dict[str, float]:
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
