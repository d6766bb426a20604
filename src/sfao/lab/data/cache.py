"""Decoded arrays in .npy files that are mapped into memory, so that a data set is decoded once.

An entry is a folder named after the data set and the sizes and times of its source files. It holds one file per array
and `entry.json` with their digests. It is written under another name and renamed, so it is whole or absent.
"""

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path

import numpy as np

from sfao.lab.data.arrays import Arrays, digest_arrays, digest_values
from sfao.lab.data.description import DatasetDescription, Layout
from sfao.lab.data.errors import DataError
from sfao.lab.data.root import list_cache_folders
from sfao.lab.safe_io import read_json

#: Changes when the readers return other arrays for the same files, or entries have another form.
VERSION = 3


@dataclass(frozen=True)
class Loaded:
    """The arrays of a data set, the digest of their values, and whether all files are the published ones."""

    arrays: Arrays
    digest: str
    published: bool


def load_layout(description: DatasetDescription, layout: Layout, root: Path, *, published: bool = False) -> Loaded:
    """Return the arrays of a layout: from the cache, else read from its files, checked and cached.

    Args:
        description: the data set.
        layout: its files.
        root: the data root.
        published: the files come from the published archive, where only that one's digest is known.
    """
    folders = [] if description.embedded else list_cache_folders(root)
    name = name_entry(description.name, layout)
    found = find_entry(name, folders)
    if found is None:
        published = description.check_published(layout) or published
        arrays = layout.read()
        found = write_entry(name, folders, Loaded(arrays, digest_arrays(arrays), published))
    return found


def name_entry(name: str, layout: Layout) -> str:
    """Return the name of the entry for the files as they are now."""
    marks = []
    for path in (*layout.files, *layout.watched):
        status = path.stat()
        marks.append([path.relative_to(layout.folder).as_posix(), status.st_size, status.st_mtime_ns])
    return f"{name}-{sha256(json.dumps(marks).encode()).hexdigest()[:16]}.v{VERSION}"


def find_entry(name: str, folders: Sequence[Path]) -> Loaded | None:
    """Return the arrays of an entry, mapped; None if there is no entry, or a damaged one, which is removed."""
    for folder in folders:
        try:
            return read_entry(folder / name)
        except (DataError, FileNotFoundError):
            shutil.rmtree(folder / name, ignore_errors=True)
        except OSError:  # it can't be read now: the folder of another user, a failing disk
            continue
    return None


def read_entry(entry: Path, *, verify: bool = False) -> Loaded:
    """Map the arrays of an entry; a DataError names a file that is not what was written.

    Args:
        entry: the folder.
        verify: read all values and compare their digests.
    """
    try:
        facts = read_json(entry / "entry.json")
        digests, published = {str(name): str(value) for name, value in facts["digests"].items()}, facts["published"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{entry / 'entry.json'}: must be as it was written ({error})") from error
    arrays = {}
    for name in (field.name for field in fields(Arrays)):
        path = entry / f"{name}.npy"
        try:
            # Copy on write: torch wants memory that it may write to, and the file must not change.
            array = np.load(path, mmap_mode="c", allow_pickle=False)
        except (ValueError, EOFError, TypeError, SyntaxError) as error:
            raise DataError(f"{path}: must be a whole array of numbers ({error})") from error
        kind, dimensions = (np.uint8, 4) if name.endswith("images") else (np.int64, 1)
        if array.dtype != kind or array.ndim != dimensions:
            raise DataError(
                f"{path}: must hold {np.dtype(kind)} in {dimensions}-D, got {array.dtype} in {array.ndim}-D"
            )
        if name not in digests or (verify and digest_values(array) != digests[name]):
            raise DataError(f"{path}: must have the values that were written, got others")
        arrays[name] = array
    loaded = Arrays(**arrays)
    return Loaded(loaded, digest_arrays(loaded, digests), published is True)


def write_entry(name: str, folders: Sequence[Path], loaded: Loaded) -> Loaded:
    """Write an entry into the first folder that can be written; return its arrays, mapped if that worked."""
    for folder in folders:
        staging = folder / f".{name}-{uuid.uuid4().hex}"
        try:
            staging.mkdir(parents=True)
            for key, array in loaded.arrays.items():
                with (staging / f"{key}.npy").open("wb") as file:
                    np.save(file, array, allow_pickle=False)
                    file.flush()
                    os.fsync(file.fileno())  # the rename must not reach the disk before the values
            digests = {key: digest_values(array) for key, array in loaded.arrays.items()}
            (staging / "entry.json").write_text(json.dumps({"published": loaded.published, "digests": digests}))
            with suppress(OSError):  # another process was faster
                staging.rename(folder / name)
            return read_entry(folder / name, verify=True)
        except (OSError, DataError):  # not writable, or full
            continue
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return loaded
