"""Checkpoints: the last two, each written atomically, so that one is always good."""

import io
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from sfao.experiment.files import write_atomically

LATEST, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Save a state, and keep the one saved before it."""
    latest, previous = folder / LATEST, folder / PREVIOUS
    # Packed first: a full disk is then an OSError that says so, where torch.save hides it behind one of its own.
    data = pack_state(_seal(state))
    if latest.exists():
        os.replace(latest, previous)
    write_atomically(latest, data)


@dataclass(frozen=True)
class LoadedCheckpoint:
    state: dict[str, Any]
    #: The damage that was found, in words; empty when the latest checkpoint was good.
    notice: str = ""


def load_checkpoint(folder: Path) -> LoadedCheckpoint | None:
    """Return the latest state that can be read, or None when there is no checkpoint at all."""
    notices: list[str] = []
    for name in (LATEST, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            state = _unseal(torch.load(path, weights_only=True))
            return LoadedCheckpoint(state, "; ".join([*notices, f"went on from {name}"]) if notices else "")
        except Exception as error:  # a damaged zip fails in many ways
            notices.append(f"{name} is damaged ({type(error).__name__})")
    if notices:
        return LoadedCheckpoint({}, "; ".join([*notices, "starting over"]))
    return None


def read_checkpoint_data(folder: Path) -> dict[str, Any] | None:
    """Return the description of the data that the latest state is of, without loading the state; None if unknown."""
    for name in (LATEST, PREVIOUS):
        try:
            data: dict[str, Any] | None = torch.load(folder / name, weights_only=True, mmap=True).get("data")
        except Exception:  # missing, or damaged in one of many ways
            continue
        return data
    return None


def _seal(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state as bytes beside their digest: torch.load alone does not notice a flipped bit in a tensor."""
    data = pack_state(state)
    return {
        "sha256": sha256(data).hexdigest(),
        "data": state.get("data"),
        "state": torch.frombuffer(bytearray(data), dtype=torch.uint8),
    }


def pack_state(state: dict[str, Any]) -> bytes:
    """Return the state as bytes, which no later step changes."""
    packed = io.BytesIO()
    torch.save(state, packed)
    return packed.getvalue()


def unpack_state(data: bytes) -> dict[str, Any]:
    """Return the state that was packed, with its tensors on the CPU."""
    state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    return state


def _unseal(sealed: dict[str, Any]) -> dict[str, Any]:
    data = sealed["state"].numpy().tobytes()
    if sha256(data).hexdigest() != sealed["sha256"]:
        raise ValueError("the digest differs")
    return unpack_state(data)


def remove_checkpoints(folder: Path) -> None:
    for name in (LATEST, PREVIOUS):
        (folder / name).unlink(missing_ok=True)
