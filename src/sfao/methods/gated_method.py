"""The common part of the methods on SFAO's gate: they report its memory and its decisions."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch

from sfao.methods.method import Method
from sfao.optim.sfao import SFAO


@contextmanager
def leave_warnings_to_concerns() -> Iterator[None]:
    """Silence the warnings of `consolidate`: a method says as a concern, in its record, what they say."""
    with warnings.catch_warnings():
        for start in ("layers without an input space", "the directions of these layers"):
            warnings.filterwarnings("ignore", start, RuntimeWarning)
        yield


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
        cosines, drifts = self.optimizer.last_cosines, self.optimizer.drifts
        looks = {"cosine": cosines, "kept": self.optimizer.kept(), "drift": drifts}
        return {
            layer: {name: values[layer] for name, values in looks.items() if layer in values} for layer in looks["kept"]
        }

    def measure_risk(self) -> tuple[float, float]:
        lengths = [parameter.grad.norm() for parameter in self.model.parameters() if parameter.grad is not None]
        return self.optimizer.risk(), float(torch.stack(lengths).norm())
