"""The work of a gate that projects or softens at every step: its amount and its speed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from sfao.cost.memory_size import MemorySize
from sfao.gating.storage import STORAGES
from sfao.optim.gate import Gate

Shapes = Sequence[tuple[int, ...]]
#: By kind: bytes of directions read by dense blocks, floating-point operations of factored ones and on axes.
Work = Mapping[str, float]
UNITS = {"subspace": "FLOP", **{kind: block.work_unit for kind, block in STORAGES.items()}}


class Holding(Protocol):
    """The way that each layer holds what it remembers, directions or axes, with the work of a step."""

    #: The memory, what it holds, and what every layer does at a step.
    memory: ClassVar[str]
    held: ClassVar[str]
    action: ClassVar[str]

    @property
    def options(self) -> dict[str, Any]:
        """The options of a gate that holds so."""

    def count_bytes(self, groups: Sequence[dict[str, Any]]) -> MemorySize:
        """Return the bytes of a full memory of these param groups."""

    def count_work(self, shapes: Shapes) -> Work:
        """Return the work of a layer with parameters of these shapes."""

    def shrink(self, shapes: Shapes) -> Shapes:
        """Return a layer with next to no work that takes as many calls as this one."""

    def choose_samples(self, layers: Sequence[Shapes]) -> "dict[str, tuple[Shapes, Holding]]":
        """Return by kind of work a layer with enough of it to be timed, and a holding with which it can be."""

    def make_gate(self, groups: list[dict[str, Any]], device: torch.device) -> Gate:
        """Return a full gate whose layers all do their work at every step."""


@dataclass(frozen=True)
class Pace:
    """The speed of a kind of work: bytes or operations per millisecond."""

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
        return f"{self.a_ms / 1e6:.1f} G{UNITS[self.kind]}/s"
