"""The work of a gate that softens by the axes of inputs at every step, and made-up layers that show its speed."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import torch

from sfao.cost.filling import fill_spaces
from sfao.cost.gate_work import Holding, Shapes
from sfao.cost.memory_size import MemorySize, count_axes_bytes
from sfao.gating._layout import Layout, lay_out
from sfao.optim.gate import Gate

#: Rows that are next to no work, and operations that can be timed.
FEW_ROWS, LEAST_WORK = 2, 5 * 10**7


@dataclass(frozen=True)
class AxesHolding:
    """The number of axes that each layer holds at most."""

    axes: int

    memory: ClassVar[str] = "subspace"
    held: ClassVar[str] = "axes"
    action: ClassVar[str] = "softens"

    @staticmethod
    def of(options: dict[str, Any]) -> "AxesHolding":
        """Return the holding that these options, all of them set, name."""
        return AxesHolding(options["axes"])

    @property
    def options(self) -> dict[str, Any]:
        return {"axes": self.axes}

    def __str__(self) -> str:
        return f"{self.axes} axes per layer"

    def count_bytes(self, groups: Sequence[dict[str, Any]]) -> MemorySize:
        return count_axes_bytes(groups, self.axes)

    def count_work(self, shapes: Shapes) -> dict[str, float]:
        """Return the operations of two products with the axes: coordinates, and what is removed along them."""
        return {self.memory: float(sum(self._count(layout) for layout in _lay_out_matrices(shapes)))}

    def _count(self, layout: Layout) -> int:
        return 2 * 2 * layout.size * min(self.axes, layout.width)

    def shrink(self, shapes: Shapes) -> list[tuple[int, ...]]:
        """Return a layer of as many parameters and, as their number matters to the calls, as many axes; of few rows."""
        return [
            (min(shape[0], FEW_ROWS), min(prod(shape[1:]), self.axes)) if len(shape) > 1 else (min(shape[0], FEW_ROWS),)
            for shape in shapes
        ]

    def choose_samples(self, layers: Sequence[Shapes]) -> dict[str, tuple[Shapes, Holding]]:
        """Return the matrix with the most work of all, made higher where that is too little to be timed."""
        matrices = [layout for shapes in layers for layout in _lay_out_matrices(shapes)]
        if not matrices:
            return {}
        most = max(matrices, key=self._count)
        rows = most.rows * max(1, LEAST_WORK // self._count(most))
        return {self.memory: ([(rows, most.width)], self)}

    def make_gate(self, groups: list[dict[str, Any]], device: torch.device) -> Gate:
        gate = Gate(groups, **self.options)
        for number, layer in enumerate(gate.layers):
            fill_spaces(layer, self.axes, device, seed=number)
        return gate


def _lay_out_matrices(shapes: Shapes) -> list[Layout]:
    """Return the layouts that begin with a matrix, which may have an input space."""
    found, first = [], 0
    for layout in lay_out(shapes):
        if len(shapes[first]) > 1:
            found.append(layout)
        first += len(layout.columns)
    return found
