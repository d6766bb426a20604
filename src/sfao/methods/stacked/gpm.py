"""GPM of many runs at once: its gates, of which nothing is kept along past inputs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, cast

from torch import Tensor

from sfao.methods.gpm import GPM, count_discards_as_projections
from sfao.methods.method import Method
from sfao.methods.stacked.gate import StackedGate
from sfao.methods.stacked.method import StackReport
from sfao.methods.stacked.models import Tensors
from sfao.optim.layers import Layer


class StackedGPM(StackedGate):
    varying: ClassVar[frozenset[str]] = frozenset({"threshold", "threshold_increase", "examples"})

    def __init__(self, methods: Sequence[Method]) -> None:
        super().__init__(methods)
        first = cast(GPM, methods[0])
        self._first = first
        self._frozen = {self.names[0][parameter] for parameter in first.others} if first.past_outputs else set()

    def find_layers(self, method: Method) -> list[Layer]:
        found = cast(GPM, method)
        return list(found.layers.values()) if found.past_outputs else super().find_layers(method)

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        if self.softening is not None:
            self.softening.keep[:, -1] = self._first.keep_of_last(outputs)
        return super().step(inputs, targets, outputs)

    def descend(self, gradients: Tensors) -> None:
        super().descend({name: gradient for name, gradient in gradients.items() if name not in self._frozen})

    def report(self, losses: Tensor) -> list[StackReport]:
        return [replace(report, decisions=self._count(report), looks={}) for report in super().report(losses)]

    def _count(self, report: StackReport) -> dict[str, dict[str, int]]:
        return {name: count_discards_as_projections(report.decisions[name]) for name in self._first.layers}
