"""Files that are written whole or not at all, never through a link; locks of folders; JSON with a checksum."""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from sfao.lab.run.errors import FolderError
from sfao.lab.safe_io import name_file_in_errors, open_file

LOCK = ".lock"
#: The version of sealed JSON files.
FORMAT = 2


@contextmanager
def replace_file(path: Path, keep: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` once it is written and on the disk; the old one becomes `keep`, if given."""
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
    try:
        with name_file_in_errors(path):
            with open_file(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if keep is not None and path.exists():
                os.replace(path, keep)
            os.replace(part, path)
            _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if folders can be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems do this by themselves
            raise
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, keep: Path | None = None) -> None:
    """Write a file so that a reader sees the old content or the new one."""
    with replace_file(path, keep) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the version of their format and their checksum."""
    sealed = {"format": FORMAT, **values}
    return {**sealed, "sha256": digest_values(sealed)}


def unseal(sealed: Any) -> dict[str, Any]:
    """Return the values, or raise a ValueError if they aren't those that were sealed."""
    if not isinstance(sealed, dict):
        raise ValueError(f"it must hold names and values, got {type(sealed).__name__}")
    values = dict(sealed)
    if values.get("format") != FORMAT:
        raise ValueError(f"`format` must be {FORMAT}, got {values.get('format')!r}")
    if values.pop("sha256", None) != digest_values(values):
        raise ValueError("it was changed after it was written: `sha256` must be the digest of all other values")
    del values["format"]
    return values


def digest_values(values: Mapping[str, Any]) -> str:
    """Return a digest that depends neither on the order of names nor on white space in the file."""
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@contextmanager
def lock_folder(folder: Path, doing: str = "running") -> Iterator[None]:
    """Hold the folder; raise a FolderError if another process does."""
    path = folder / LOCK
    if path.is_symlink():
        raise FolderError(f"{path} must be a file of its own, got a link")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise FolderError(f"`out` must be free, but another process is {doing} in {folder}") from error
    try:
        yield
    finally:
        lock.release()


def check_free(folder: Path, doing: str = "running") -> None:
    """Refuse a folder in which another process is running; checked first, as its content may still change."""
    if os.path.lexists(folder / LOCK):
        with lock_folder(folder, doing):
            pass
