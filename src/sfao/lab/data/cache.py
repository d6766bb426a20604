"""Decoded arrays in files that can be mapped into memory, so that a data set is decoded only once.

An entry is a folder named after the data set and the digest of the files it was read from, with one file of plain
values per array, and checks.json: the shapes, kinds and digests of them all, and its own. It is written under another
name and renamed, so it is there whole or not at all. An entry that is not as it was written is made again from the
source; one that cannot be written is kept in memory; one that cannot be read now is left alone.
"""

import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfao.lab.data.array_digests import Checks, digest_arrays, digest_checks, make_checks
from sfao.lab.data.digests import compute_digest
from sfao.lab.data.formats.file_layout import Arrays
from sfao.lab.data.proofs import drop_proof, is_proven, keep_proof, take_marks
from sfao.lab.safe_io import parse_json

#: Changes when the readers give other arrays for the same files, or entries look otherwise.
VERSION = 2

CHECKS = "checks.json"
LARGEST_CHECKS = 1 << 14


@dataclass(frozen=True)
class Loaded:
    """The arrays of a data set, and a digest that is equal where all their values are."""

    arrays: Arrays
    digest: str


class DamagedEntry(Exception):  # noqa: N818, a message to the caller, not an error of its own
    """An entry that is not as it was written; it names the file."""


def find_cached(name: str, source: str, folders: Sequence[Path]) -> Loaded | None:
    """Return the arrays that were read from files of the digest `source`; None when they must be read again."""
    for folder in folders:
        # A folder that belongs to another user is passed by. Other errors of the disk are for the caller to tell.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError, DamagedEntry):
            return read_entry(folder / name_entry(name, source), folders)
    return None


def keep_cached(name: str, source: str, folders: Sequence[Path], arrays: Arrays) -> Loaded:
    """Write the arrays to the first folder that can be written, and return them, mapped where that is possible."""
    for folder in folders:
        if write_entry(folder / name_entry(name, source), arrays):
            break
    return find_cached(name, source, folders) or Loaded(arrays, digest_arrays(arrays))


def name_entry(name: str, source: str) -> str:
    """Return the name of the folder of an entry."""
    return f"{name}-{source.removeprefix('sha256:')[:16]}.v{VERSION}"


def list_entries(name: str, folders: Sequence[Path]) -> list[Path]:
    """List the entries of a data set, whatever they were read from."""
    pattern = re.compile(rf"{re.escape(name)}-[0-9a-f]{{16}}\.v{VERSION}")
    found: list[Path] = []
    for folder in folders:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            found += sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    return found


def read_entry(entry: Path, folders: Sequence[Path]) -> Loaded:
    """Return the arrays of an entry, mapped; the values are read only if the files were touched since the last time."""
    checks = _read_checks(entry)
    paths = [_get_path(entry, name) for name in checks]
    marks = take_marks(paths)
    digest = digest_checks(checks)
    arrays = Arrays(**{name: _map(_get_path(entry, name), check) for name, check in checks.items()})
    if not is_proven(folders, entry.name, digest, marks):
        check_entry(entry)
        keep_proof(folders, entry.name, digest, marks)
    return Loaded(arrays, digest)


def check_entry(entry: Path) -> None:
    """Read all files of an entry; a DamagedEntry names the one that is not as it was written."""
    for name, check in _read_checks(entry).items():
        path = _get_path(entry, name)
        if compute_digest(path) != check["digest"]:
            raise DamagedEntry(path)


def distrust_entry(entry: Path, folders: Sequence[Path]) -> None:
    """Have the files of an entry read again when they are next used."""
    drop_proof(folders, entry.name)


def write_entry(entry: Path, arrays: Arrays) -> bool:
    """Write an entry in the place of one that is not whole, and tell whether there is a whole one now."""
    staging = entry.with_name(f".{entry.name}-{uuid.uuid4().hex}")
    try:
        staging.mkdir(parents=True)
        for name, array in arrays.items():
            with _get_path(staging, name).open("wb") as file:
                np.ascontiguousarray(array).tofile(file)
                os.fsync(file.fileno())  # the rename must not reach the disk before the bytes
        (staging / CHECKS).write_text(_format_checks(make_checks(arrays)))
        if not _is_whole(entry):  # else another process was faster
            shutil.rmtree(entry, ignore_errors=True)
            os.rename(staging, entry)
        return True
    except OSError:  # no place, or another process renamed its own in the meantime
        with suppress(OSError):
            return _is_whole(entry)
        return False
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _read_checks(entry: Path) -> Checks:
    path = entry / CHECKS
    with path.open("rb") as file:
        text = file.read(LARGEST_CHECKS).decode(errors="replace")
    try:
        checks: Checks = parse_json(text)["arrays"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedEntry(path) from error
    if text != _format_checks(checks) or list(checks) != [field.name for field in fields(Arrays)]:
        raise DamagedEntry(path)
    return checks


def _format_checks(checks: Checks) -> str:
    return json.dumps({"arrays": checks, "digest": digest_checks(checks)}) + "\n"


def _map(path: Path, check: dict[str, Any]) -> NDArray[Any]:
    kind, shape = np.dtype(check["kind"]), tuple(check["shape"])
    if path.stat().st_size != kind.itemsize * math.prod(shape):
        raise DamagedEntry(path)
    # Copy on write: torch wants memory that it may write to, and the file must not change.
    return np.memmap(path, kind, "c", shape=shape)


def _is_whole(entry: Path) -> bool:
    try:
        check_entry(entry)
    except (FileNotFoundError, NotADirectoryError, DamagedEntry):
        return False
    return True


def _get_path(entry: Path, name: str) -> Path:
    return entry / f"{name}.bin"
