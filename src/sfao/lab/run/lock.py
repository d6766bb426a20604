"""The lock of a folder, by which one process at a time works in it, and knows when it is no longer the same folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sfao.lab.run.errors import FolderError, FolderLost

LOCK = ".lock"

#: {folder that this process holds: device and inode of its lock}. Whoever removes or replaces the folder makes another
#: lock; the inode of the old one stays taken for as long as it is held.
_HELD: dict[Path, tuple[int, int] | None] = {}


@contextmanager
def lock_folder(folder: Path, doing: str = "running") -> Iterator[None]:
    """Hold the folder; raise a FolderError where another process does."""
    path, key = folder / LOCK, folder.absolute()
    if path.is_symlink():
        raise FolderError(f"{path} must be a file of its own, got a link")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise FolderError(f"`out` must be free, but another process is {doing} in {folder}") from error
    before = _HELD.get(key)  # of a folder that was here, and that this process holds still
    try:
        _HELD[key] = _identify(path)
        yield
    finally:
        if before is None:
            del _HELD[key]
        else:
            _HELD[key] = before
        lock.release()


def check_free(folder: Path, doing: str = "running") -> None:
    """Refuse a folder in which another process is running; checked first, as its content may still change."""
    if os.path.lexists(folder / LOCK):
        with lock_folder(folder, doing):
            pass


def check_still_held(folder: Path) -> None:
    """Raise FolderLost where this process locked a folder that is no longer there, or is another one by now."""
    key = folder.absolute()
    if key in _HELD and _HELD[key] != _identify(folder / LOCK):
        raise FolderLost(
            f"`out` must stay in place while it is in use, but {folder} was removed or replaced; no more is written"
        )


def _identify(path: Path) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
