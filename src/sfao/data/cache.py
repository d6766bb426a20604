"""Arrays kept as .npy files that can be mapped into memory, so that a data set is decoded only once.

An entry is a folder named after the data set and a fingerprint of the files it was read from. It is written
under another name and renamed, so it is there whole or not at all. Nothing here ever fails a run: an entry that
cannot be read is read again from the source, one that cannot be written is kept in memory.
"""

import hashlib
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sfao.data.formats.file_layout import Arrays, FileLayout
from sfao.outside_text.json_text import read_json

#: Changes when the readers give other arrays for the same files.
VERSION = 1

CHECKS = "checks.json"


def load_cached(name: str, layout: FileLayout, folders: Sequence[Path]) -> Arrays:
    """Return the arrays of a layout from the first folder that has them; else read them and write them to one."""
    key = f"{name}-{compute_fingerprint(layout)}"
    for folder in folders:
        cached = read_entry(folder / key)
        if cached is not None:
            return cached
    arrays = layout.read()
    for folder in folders:
        if write_entry(folder / key, arrays):
            return read_entry(folder / key) or arrays
    return arrays


def compute_fingerprint(layout: FileLayout) -> str:
    """Return a text that changes with the place, the sizes and the times of the files."""
    digest = hashlib.sha256(f"{VERSION} {layout.folder.resolve()}".encode())
    for path in (*layout.files, *layout.watched):
        status = path.stat()
        digest.update(f"\0{path.relative_to(layout.folder)} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def read_entry(entry: Path) -> Arrays | None:
    """Return the arrays of an entry, mapped; None when it is not there or is damaged.

    Sizes, kinds and all labels are checked. Pixels are not: reading them all would undo the mapping.
    """
    try:
        checks = read_json(entry / CHECKS)
        # Copy on write: torch wants memory that it may write to, and the file must not change.
        arrays = Arrays(**{name: np.load(entry / f"{name}.npy", mmap_mode="c") for name in checks})
        return arrays if _compute_checks(arrays) == checks else None
    except (OSError, ValueError, TypeError, EOFError):
        return None


def write_entry(entry: Path, arrays: Arrays) -> bool:
    """Write an entry, and tell whether it is there now."""
    staging = entry.with_name(f".{entry.name}-{uuid.uuid4().hex}")
    try:
        staging.mkdir(parents=True)
        for name, array in arrays.items():
            with (staging / f"{name}.npy").open("wb") as file:
                np.save(file, array)
                os.fsync(file.fileno())  # the rename must not reach the disk before the bytes
        (staging / CHECKS).write_text(json.dumps(_compute_checks(arrays)))
        if read_entry(entry) is None:  # else another process was faster
            shutil.rmtree(entry, ignore_errors=True)
            os.rename(staging, entry)
        return True
    except OSError:  # no place, or another process renamed its own in the meantime
        return read_entry(entry) is not None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _compute_checks(arrays: Arrays) -> dict[str, list[object]]:
    return {
        name: [list(array.shape), array.dtype.str, zlib.crc32(array.tobytes()) if "labels" in name else None]
        for name, array in arrays.items()
    }
