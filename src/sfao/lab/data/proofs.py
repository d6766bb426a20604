"""Proofs that files were read and had a digest, so that they need not be read again while they are untouched.

A proof is a digest of the expected digest and of the size, the times and the inode of every file. Whatever happens
to it, or to the files, it no longer fits, and the files are read again.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from sfao.lab.data.small_files import read_all, write_first

#: A file that changed so recently may change again within the same tick of the file system's clock.
SETTLED_SECONDS = 2.0

#: The size, the times and the inode of each file; the time of change is set by the system alone.
Marks = list[tuple[int, int, int, int]]


def take_marks(paths: Iterable[Path]) -> Marks:
    """Return the marks of files or folders."""
    found = [path.stat() for path in paths]
    return [(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino) for status in found]


def is_proven(folders: Sequence[Path], name: str, digest: str, marks: Marks) -> bool:
    """Tell whether files with these marks were found to have this digest."""
    return _make_proof(digest, marks) in read_all(folders, f"{name}.checked")


def keep_proof(folders: Sequence[Path], name: str, digest: str, marks: Marks) -> None:
    """Write down that files with these marks, taken before they were read, have this digest."""
    newest = max((max(mark[1:3]) for mark in marks), default=0)
    if time.time_ns() - newest >= SETTLED_SECONDS * 1e9:
        write_first(folders, f"{name}.checked", _make_proof(digest, marks))


def drop_proof(folders: Sequence[Path], name: str) -> None:
    """Have the files read again when they are next used."""
    for folder in folders:
        try:
            (folder / f"{name}.checked").unlink(missing_ok=True)
        except OSError:
            continue  # a folder that cannot be written holds no proof of this user's


def _make_proof(digest: str, marks: Marks) -> str:
    return hashlib.sha256(f"{digest} {marks}".encode()).hexdigest() + "\n"
