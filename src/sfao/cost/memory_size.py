"""The bytes of a full memory: exactly what `memory_bytes` and `workspace_bytes` will say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfao.gating._layout import Layout, lay_out
from sfao.gating.storage import Storage
from sfao.gating.subspace import count_bytes
from sfao.optim._planning import lay_out_matrices

FLOAT64 = 8


@dataclass(frozen=True)
class MemorySize:
    #: Of the directions or axes.
    held: int
    #: Of the small matrices of a gate that projects, when the directions are independent; else it is less.
    workspace: int


def count_memory_bytes(groups: Sequence[dict[str, Any]], capacity: int, storage: Storage) -> MemorySize:
    """Return the bytes of a memory with `capacity` directions for each of these layers."""
    directions = workspace = 0
    for group in groups:
        of_layer = layer_layouts(group)
        if not of_layer:
            continue
        directions += capacity * storage.bytes_per_direction(of_layer)
        spanned = min(capacity, sum(layout.size for layout in of_layer))
        # Inverse norms, Gram matrix, scaled eigenvectors.
        workspace += FLOAT64 * capacity * (1 + capacity + spanned)
    return MemorySize(directions, workspace)


def count_axes_bytes(groups: Sequence[dict[str, Any]], axes: int) -> MemorySize:
    """Return the bytes of a memory with so many axes for each layer that can have an input space."""
    matrices = [layout for group in groups for layout in lay_out_matrices(group)]
    return MemorySize(sum(count_bytes(layout, axes) for layout in matrices), 0)


def layer_layouts(group: dict[str, Any]) -> list[Layout]:
    return lay_out([parameter.shape for parameter in group["params"] if parameter.numel()])
