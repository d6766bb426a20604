"""The progress of a run, as it is reported while it goes on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


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
