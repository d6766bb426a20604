"""The common part of the methods on SFAO's gate: they report its memory and its decisions."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch

from sfao.lab.methods.method import Method
from sfao.optimizer import SFAO


@contextmanager
def leave_warnings_to_concerns() -> Iterator[None]:
    """Silence a warning of `consolidate` that a method reports as a concern, in its record."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the directions of these layers", RuntimeWarning)
        yield


class GatedMethod(Method):
    optimizer: SFAO
    is_gated: ClassVar[bool] = True

    @property
    def memory_bytes(self) -> int:
        """Bytes of the stored directions, without room for more, which a resumed run has not."""
        memories = [layer.memory for layer in self.optimizer.gate.layers]
        return sum(tensor.nbytes for memory in memories for part in memory.parts for tensor in part.held)

    @property
    def directions(self) -> int:
        return max(len(layer.memory) for layer in self.optimizer.gate.layers)

    @property
    def decisions(self) -> dict[str, dict[str, int]]:
        return self.optimizer.gate.counts

    @property
    def looks(self) -> dict[str, dict[str, float]]:
        looks = {"cosine": self.optimizer.last_cosines, "kept": self.optimizer.kept()}
        return {
            layer: {name: values[layer] for name, values in looks.items() if layer in values} for layer in looks["kept"]
        }

    def measure_risk(self) -> tuple[float, float]:
        lengths = [parameter.grad.norm() for parameter in self.model.parameters() if parameter.grad is not None]
        return self.optimizer.risk(), float(torch.stack(lengths).norm())

    def find_spanned(self) -> list[str]:
        """Return the names of layers whose directions span all of them."""
        return [layer.name for layer in self.optimizer.gate.layers if layer.memory.spans_everything()]
