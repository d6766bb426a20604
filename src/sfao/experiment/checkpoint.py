"""Checkpoints: the last two, each written atomically, so that one is always good."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sfao.experiment.files import write_atomically

LATEST, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Save a state; the one saved before is kept until the next."""
    latest, previous = folder / LATEST, folder / PREVIOUS
    if latest.exists():
        os.replace(latest, previous)
    write_atomically(latest, lambda file: torch.save(state, file))


@dataclass(frozen=True)
class Loaded:
    state: dict[str, Any]
    #: What was damaged, in words; empty when the latest checkpoint was good.
    notice: str = ""


def load_checkpoint(folder: Path) -> Loaded | None:
    """The latest state that can be read, or None when there is none at all."""
    notices: list[str] = []
    for name in (LATEST, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            state = torch.load(path, weights_only=True, map_location="cpu")
            return Loaded(state, "; ".join([*notices, f"went on from {name}"]) if notices else "")
        except Exception as error:  # a damaged zip fails in many ways
            notices.append(f"{name} is damaged ({type(error).__name__})")
    if notices:
        return Loaded({}, "; ".join([*notices, "starting over"]))
    return None


def remove_checkpoints(folder: Path) -> None:
    for name in (LATEST, PREVIOUS):
        (folder / name).unlink(missing_ok=True)
