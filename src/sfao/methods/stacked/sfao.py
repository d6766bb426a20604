"""SFAO of many runs at once, with the memory that it has by default."""

from typing import ClassVar

from sfao.methods.method import MethodOptions
from sfao.methods.sfao import SFAOOptions
from sfao.methods.stacked.gate import StackedGate


class StackedSFAO(StackedGate):
    varying: ClassVar[frozenset[str]] = frozenset({"keep", "tolerance", "restore", "axes", "limit", "memory_budget"})

    @staticmethod
    def find_obstacle(options: MethodOptions) -> str | None:
        memory = options.memory if isinstance(options, SFAOOptions) else None
        return None if memory == "subspace" else f"of sfao, only memory='subspace' can be stacked, got {memory!r}"
