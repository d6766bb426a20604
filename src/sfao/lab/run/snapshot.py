"""The state of a run in the middle of a task: what a checkpoint saves, and what a guard goes back to."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from sfao.lab.methods import Method
from sfao.lab.run.position import Position


def take_snapshot(position: Position, method: Method, generators: Sequence[torch.Generator]) -> dict[str, Any]:
    """Return the state in plain containers; its tensors are those that the next step changes."""
    return {
        "position": asdict(position),
        "model": method.model.state_dict(),
        "method": method.state_dict(),
        "generators": [generator.get_state() for generator in generators],
        "threads": torch.get_num_threads(),
    }


def restore_snapshot(state: dict[str, Any], method: Method, generators: Sequence[torch.Generator]) -> Position:
    """Bring model, method and generators back to this state, and return its position.

    Sums on another number of threads are rounded elsewhere: the position then has a warning.
    """
    method.model.load_state_dict(state["model"])
    method.load_state_dict(state["method"])
    for generator, saved in zip(generators, state["generators"], strict=True):
        generator.set_state(saved)
    told = {name: value for name, value in state["position"].items() if name != "stacked"}  # older checkpoints have it
    position = Position(**told)
    before, now = state.get("threads"), torch.get_num_threads()  # older checkpoints do not have it
    if before not in (None, now):
        warning = f"resumed on {now} CPU threads after {before}: the last bits may differ"
        position.warnings = [*position.warnings, warning]
    return position
