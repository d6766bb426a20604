"""Checkpoints: the last two, each written atomically, so that one is always good, and sealed with what it is of.

A file is the packed state, a line of JSON on it, and an end of fixed length with the digest of that line.
"""

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import torch

from sfao.lab.run.errors import is_out_of_memory
from sfao.lab.run.files import replace_file
from sfao.lab.safe_io import name_file_in_errors, open_file, parse_json

LATEST, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
#: Ends every checkpoint, after the digest and the length of the line on the state.
MARK = b"sfao checkpoint 2\n"
_LENGTH_DIGITS = 10
_END_BYTES = 64 + _LENGTH_DIGITS + len(MARK)
_BLOCK_BYTES = 2**20


class Damaged(Exception):  # noqa: N818, it names what happened
    """A file that could be read, and is not what was written."""


class Label(NamedTuple):
    """What a checkpoint is of; files of older versions do not tell their settings."""

    #: The name of the file.
    name: str
    config: dict[str, Any] | None
    data: dict[str, Any] | None


def save_checkpoint(folder: Path, state: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> None:
    """Save a state, of whatever size, with the settings of its run, and keep the one saved before it."""
    with replace_file(folder / LATEST, keep=folder / PREVIOUS) as file:
        writer = _DigestedFile(file)
        try:
            torch.save(state, cast(BinaryIO, writer))
        except RuntimeError:
            if writer.error is not None:  # a full disk, say, which torch hides behind an error of its own
                raise writer.error from None
            raise
        label = {"config": config, "data": state.get("data"), "bytes": writer.length, "sha256": writer.digest}
        line = json.dumps(label).encode() + b"\n"
        file.write(line + sha256(line).hexdigest().encode() + f"{len(line):0{_LENGTH_DIGITS}}".encode() + MARK)


@dataclass(frozen=True)
class LoadedCheckpoint:
    state: dict[str, Any]
    #: The damage that was found, in words; empty when the latest checkpoint was good.
    notice: str = ""
    #: None when no checkpoint could be read.
    label: Label | None = None


def load_checkpoint(folder: Path) -> LoadedCheckpoint | None:
    """Return the latest state that is as it was written, or None when there is no checkpoint at all.

    Only a broken seal is damage. A file that cannot be read now, for want of rights or memory, is an error as it is:
    whoever went on without it would write over it.
    """
    notices: list[str] = []
    for name in (LATEST, PREVIOUS):
        try:
            state, label = _read_checkpoint(folder / name)
        except FileNotFoundError:
            continue
        except Damaged as error:
            notices.append(f"{name} is damaged ({error})")
            continue
        if label.config is None:
            notices.append(f"{name} is of an older version, and does not tell its run")
        said = "; ".join([*notices, f"went on from {name}"]) if notices else ""
        return LoadedCheckpoint(state, said, label)
    if notices:
        return LoadedCheckpoint({}, "; ".join([*notices, "starting over"]))
    return None


def read_label(folder: Path) -> Label | None:
    """Return what the latest state is of, without loading the state; None where there is none."""
    for name in (LATEST, PREVIOUS):
        path = folder / name
        try:
            with name_file_in_errors(path), open_file(path, os.O_RDONLY) as file:
                line = _read_line(file)
                return _read_old(file, name)[1] if line is None else Label(name, line["config"], line["data"])
        except (FileNotFoundError, Damaged):
            continue
    return None


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], Label]:
    with name_file_in_errors(path), open_file(path, os.O_RDONLY) as file:
        line = _read_line(file)
        if line is None:
            return _read_old(file, path.name)
        if _digest_beginning(file, line["bytes"]) != line["sha256"]:
            raise Damaged("its digest differs")
        # What was sealed was whole: an error from here on is no damage.
        return _load(_Beginning(file, line["bytes"])), Label(path.name, line["config"], line["data"])


def _read_line(file: BinaryIO) -> dict[str, Any] | None:
    """Return the line on the state; None in a file without the mark, of an older version or damaged."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_BYTES))
    end = file.read()
    if len(end) < _END_BYTES or not end.endswith(MARK):
        return None
    digest, length = end[:64], end[64 : 64 + _LENGTH_DIGITS]
    if not length.isdigit() or int(length) > size - _END_BYTES:
        raise Damaged("its end is not as it was written")
    file.seek(size - _END_BYTES - int(length))
    line = file.read(int(length))
    if sha256(line).hexdigest().encode() != digest:
        raise Damaged("its digest differs")
    found: dict[str, Any] = parse_json(line, finite=False)
    if found["bytes"] != size - _END_BYTES - len(line):
        raise Damaged("its length differs")
    return found


def _digest_beginning(file: BinaryIO, length: int) -> str:
    digest, left = sha256(), length
    file.seek(0)
    while left and (block := file.read(min(left, _BLOCK_BYTES))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()


def _read_old(file: BinaryIO, name: str) -> tuple[dict[str, Any], Label]:
    """Return the state of a file from before checkpoints had an end: a zip, with the packed state beside its digest."""
    file.seek(0)
    data = file.read()
    try:
        sealed = _load(io.BytesIO(data))
        packed = sealed["state"].numpy().tobytes()
        found = sealed["data"]
    except Exception as error:  # a damaged zip fails in many ways
        if is_out_of_memory(error):
            raise
        raise Damaged(type(error).__name__) from error
    if sha256(packed).hexdigest() != sealed["sha256"]:
        raise Damaged("its digest differs")
    return unpack_state(packed), Label(name, None, found)


def pack_state(state: Mapping[str, Any]) -> bytes:
    """Return the state as bytes, which no later step changes."""
    packed = io.BytesIO()
    torch.save(state, packed)
    return packed.getvalue()


def unpack_state(data: bytes) -> dict[str, Any]:
    """Return the state that was packed, with its tensors on the CPU."""
    return _load(io.BytesIO(data))


def _load(file: Any) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu")
    return state


def remove_checkpoints(folder: Path) -> None:
    for name in (LATEST, PREVIOUS):
        (folder / name).unlink(missing_ok=True)


class _DigestedFile:
    """A file to write to from its beginning to its end, with the digest of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sha256 = file, sha256()
        self.length = 0
        #: The first error in writing.
        self.error: OSError | None = None

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()

    def write(self, data: bytes) -> int:
        try:
            self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise
        self._sha256.update(data)
        self.length += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: `replace_file` flushes, once."""


class _Beginning(io.RawIOBase):
    """The first bytes of a file, as a file of their own to read."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file, self._length, self._place = file, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._length}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        self._file.seek(self._place)
        count = self._file.readinto(view[: max(0, self._length - self._place)])  # type: ignore[attr-defined]
        self._place += count
        return int(count)
