"""The common part of the methods on SFAO's gate: they report its memory and its decisions."""

from typing import ClassVar

import torch

from sfao.methods.method import Method
from sfao.optim.sfao import SFAO


class GatedMethod(Method):
    optimizer: SFAO
    is_gated: ClassVar[bool] = True

    @property
    def memory_bytes(self) -> int:
        return self.optimizer.memory_bytes

    @property
    def directions(self) -> int:
        return max(len(layer.memory) for layer in self.optimizer.gate.layers)

    @property
    def decisions(self) -> dict[str, dict[str, int]]:
        return self.optimizer.counts

    @property
    def looks(self) -> dict[str, dict[str, float]]:
        cosines, kept = self.optimizer.last_cosines, self.optimizer.kept()
        return {layer: {"cosine": cosines[layer], "kept": share} for layer, share in kept.items()}

    def measure_risk(self) -> tuple[float, float]:
        lengths = [parameter.grad.norm() for parameter in self.model.parameters() if parameter.grad is not None]
        return self.optimizer.risk(), float(torch.stack(lengths).norm())
