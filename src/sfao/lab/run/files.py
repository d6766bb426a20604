"""Files that are either written whole or not at all, and are never links to others."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sfao.lab.run.lock import check_still_held

#: Not on every system: a link is then followed, and a pipe waited for.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_file(path: Path, most: int | None = None) -> bytes:
    """Return the content of a file; a link is refused, and an error names the file.

    Of a file with more bytes than `most`, one more than that is returned, for the caller to refuse.
    """
    with name_file_in_errors(path), open_file(path, os.O_RDONLY) as file:
        return file.read(-1 if most is None else most + 1)


def open_file(path: Path, flags: int, mode: str = "rb") -> BinaryIO:
    """Open a file that is neither a link nor a device or pipe; `flags` are those of `os.open`."""
    try:
        descriptor = os.open(path, flags | _NO_LINK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "must be a file of its own, not a link", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "must be a plain file", str(path))
    return os.fdopen(descriptor, mode)  # type: ignore[return-value]


@contextmanager
def replace_file(path: Path, keep: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of the path once it is written and on the disk; `keep` names the old one then.

    Nothing takes a place in a folder that this process locked and that is another one by now.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
    try:
        with name_file_in_errors(path):
            with open_file(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            check_still_held(path.parent)
            if keep is not None and path.exists():
                os.replace(path, keep)
            os.replace(beside, path)
            _sync_folder(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where a folder can be opened."""
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
    """Write beside the path, flush to the disk, then rename: a reader sees the old file or the new one."""
    with replace_file(path, keep) as file:
        file.write(data)


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Add the file to an OSError that lacks it: opening a file names it, writing to a full disk does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")
