"""Checkpoints: the last two, each written atomically, so that one is always intact.

A file is a line with the digest of the rest, a line of JSON that names the run, and the state that `torch.save` wrote.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import torch

from sfao.lab.run.files import replace_file
from sfao.lab.safe_io import MAX_JSON, name_file_in_errors, open_file, parse_json

LATEST, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
_DIGEST_BYTES = 64


class _DamagedError(Exception):
    """A file that can be read but isn't what was written."""


class Label(NamedTuple):
    """The run that a checkpoint is of."""

    #: The name of the file.
    name: str
    config: dict[str, Any]
    data: dict[str, Any]


@dataclass(frozen=True)
class LoadedCheckpoint:
    state: dict[str, Any]
    #: None if no checkpoint could be read.
    label: Label | None
    #: The damage that was found; empty if the latest checkpoint is intact.
    notice: str = ""


def save_checkpoint(folder: Path, state: Mapping[str, Any], config: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Save a state, of whatever size, with the settings and the data of its run, and keep the one saved before it."""
    with replace_file(folder / LATEST, keep=folder / PREVIOUS) as file:
        file.write(b"0" * _DIGEST_BYTES + b"\n" + json.dumps({"config": config, "data": data}).encode() + b"\n")
        _save(state, file)
        file.seek(_DIGEST_BYTES)
        digest = _digest_rest(file)
        file.seek(0)
        file.write(digest.encode())


def load_checkpoint(folder: Path, *, with_state: bool = True) -> LoadedCheckpoint | None:
    """Return the latest intact state, or None if there is no checkpoint at all.

    Only a wrong digest is damage. A file that can't be read now, for want of rights or memory, raises its own error:
    whoever continued without it would write over it.
    """
    notices: list[str] = []
    for name in (LATEST, PREVIOUS):
        path = folder / name
        try:
            with name_file_in_errors(path), open_file(path, os.O_RDONLY) as file:
                label = _verify(file, name)
                state = torch.load(file, weights_only=True, map_location="cpu") if with_state else {}
        except FileNotFoundError:
            continue
        except _DamagedError as error:
            notices.append(f"{name} is damaged ({error})")
            continue
        return LoadedCheckpoint(state, label, "; ".join([*notices, f"continued from {name}"]) if notices else "")
    return LoadedCheckpoint({}, None, "; ".join([*notices, "starting over"])) if notices else None


def read_label(folder: Path) -> Label | None:
    """Return the run that the latest intact state is of, without loading the state; None if there is none."""
    loaded = load_checkpoint(folder, with_state=False)
    return None if loaded is None else loaded.label


def remove_checkpoints(folder: Path) -> None:
    for name in (LATEST, PREVIOUS):
        (folder / name).unlink(missing_ok=True)


def _verify(file: BinaryIO, name: str) -> Label:
    """Return the label of an intact checkpoint, and leave the file where its state begins."""
    told = file.read(_DIGEST_BYTES)
    if _digest_rest(file).encode() != told:
        raise _DamagedError("its digest differs")
    file.seek(_DIGEST_BYTES + 1)
    label = parse_json(file.readline(MAX_JSON), finite=False)
    return Label(name, label["config"], label["data"])


def _digest_rest(file: BinaryIO) -> str:
    """Return the digest of a file from its place to its end."""
    return file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _save(state: Mapping[str, Any], file: BinaryIO) -> None:
    writer = _ErrorKeeper(file)
    try:
        torch.save(state, cast(BinaryIO, writer))
    except RuntimeError:
        if writer.error is not None:  # a full disk, say, which torch hides behind an error of its own
            raise writer.error from None
        raise


class _ErrorKeeper:
    """A file to write to that keeps its first error."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        """Do nothing: `replace_file` flushes, once."""
