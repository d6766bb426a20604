"""The position of a run: how far it has come, with everything that a record needs of the way there."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Position:
    """The progress of a run; with the states of model and method, all that a checkpoint needs."""

    task: int = 0
    epoch: int = 0
    batch: int = 0
    steps: int = 0
    seconds: float = 0.0
    stepping: float = 0.0
    #: The length of steps.jsonl, and the digest of that much of it; empty in checkpoints of older versions.
    telemetry: int = 0
    telemetry_sha256: str = ""
    matrix: list[list[float]] = field(default_factory=list)
    initial: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    #: The times that the guard went back, as the record tells them.
    rollbacks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def steps_made(self) -> int:
        """The number of steps that were made, those that a rollback undid included."""
        undone = (int(rollback["from"]) - int(rollback["to"]) for rollback in self.rollbacks)
        return self.steps + sum(undone)

    def add_rollback(self, left: "Position", error: Exception, tightened: str) -> None:
        """Note that the run has come back here from where it `left`, and take over what that does not undo."""
        self.seconds, self.stepping = left.seconds, left.stepping
        self.warnings = left.warnings
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
