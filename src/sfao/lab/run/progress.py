"""The progress of a run: its position, and the updates that it reports."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Position:
    """How far a run has come; with the states of model, method and schedule, all that a checkpoint needs."""

    task: int = 0
    epoch: int = 0
    batch: int = 0
    steps: int = 0
    seconds: float = 0.0
    stepping: float = 0.0
    #: The length of steps.jsonl, and its digest.
    telemetry: int = 0
    telemetry_sha256: str = ""
    matrix: list[list[float]] = field(default_factory=list)
    initial: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    rollbacks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def steps_made(self) -> int:
        """The number of steps that were made, those that a rollback undid included."""
        return self.steps + sum(int(rollback["from"]) - int(rollback["to"]) for rollback in self.rollbacks)

    def add_rollback(self, left: "Position", error: Exception, tightened: str) -> None:
        """Note that the run went back here from the position `left`, and keep what that doesn't undo."""
        self.seconds, self.stepping, self.warnings = left.seconds, left.stepping, left.warnings
        rollback = {
            "task": self.task,
            "step": left.steps_made,
            "from": left.steps,
            "to": self.steps,
            "reason": str(error),
            "values": getattr(error, "values", {}),
            "tightened": tightened,
        }
        self.rollbacks = [*left.rollbacks, rollback]


@dataclass(frozen=True)
class Update:
    """The progress report of a run."""

    task: int
    tasks: int
    epoch: int
    epochs: int
    step: int
    steps: int
    steps_per_second: float
    loss: float
    decisions: dict[str, int]


Report = Callable[[Update], None]


def add_up_decisions(layers: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return {decision: count} over all layers."""
    totals: dict[str, int] = {}
    for counts in layers.values():
        for decision, count in counts.items():
            totals[decision] = totals.get(decision, 0) + count
    return totals
