"""How far a layer has moved while it remembered: the way of all its steps, not the distance they led to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sfao.gating._state_checks import check_real


def _zero() -> Tensor:
    return torch.zeros((), dtype=torch.float64)


@dataclass(frozen=True)
class Travel:
    """The length of the way since a layer was last consolidated, in units of the length its parameters had then."""

    #: A scalar that a softening adds to in place, on its device.
    path: Tensor = field(default_factory=_zero)
    #: The path of the task before: a task is as long as the last one until it is longer.
    before: float = 0.0
    #: The length of the parameters at the start; None until the first step.
    size: float | None = None

    def start_anew(self) -> "Travel":
        """Return the travel of the next task."""
        return Travel(before=float(self.path))

    def state_dict(self) -> dict[str, Any]:
        return {"path": float(self.path), "before": self.before, "size": self.size}

    @staticmethod
    def from_state_dict(state: Mapping[str, Any]) -> "Travel":
        path, before = (check_real(f"travel/{name}", state[name]) for name in ("path", "before"))
        size = None if state["size"] is None else check_real("travel/size", state["size"])
        return Travel(_zero() + path, before, size)
