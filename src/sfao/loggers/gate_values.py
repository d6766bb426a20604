"""The values of a gate, by flat names, as loggers take them."""

from collections.abc import Mapping
from typing import Protocol


class Watched(Protocol):
    """The part of :class:`sfao.SFAO` and :class:`sfao.Gate` that is logged."""

    @property
    def counts(self) -> dict[str, dict[str, int]]: ...
    @property
    def last_cosines(self) -> dict[str, float]: ...
    @property
    def drifts(self) -> dict[str, float]: ...
    @property
    def memory_bytes(self) -> int: ...
    def kept(self) -> dict[str, float]: ...


def read_gate(gate: Watched) -> dict[str, float]:
    """Return decisions so far, cosine, kept share and drift of each layer, and the bytes held.

    Call it after step() and before zero_grad().
    """
    looks = {"cosine": gate.last_cosines, "kept": gate.kept(), "drift": gate.drifts}
    by_layer = {
        layer: {name: values[layer] for name, values in looks.items() if layer in values} for layer in gate.counts
    }
    return {**name_values(gate.counts), **name_values(by_layer), "memory_bytes": float(gate.memory_bytes)}


def name_values(by_layer: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return {"layer/name": value} of {layer: {name: value}}."""
    return {f"{layer}/{name}": float(value) for layer, values in by_layer.items() for name, value in values.items()}
