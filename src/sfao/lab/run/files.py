"""Files that are either written whole or not at all, and are never links to others."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sfao.lab.run.lock import check_still_held
from sfao.lab.safe_io import name_file_in_errors, open_file


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


def write_text(path: Path, text: str) -> None:
    write_atomically(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")
