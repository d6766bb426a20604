"""List data sets, and verify the files and the cached arrays of one."""

import os
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sfao.lab.data.cache import name_entry, read_entry
from sfao.lab.data.description import DatasetDescription, Layout
from sfao.lab.data.errors import DataError, MissingData
from sfao.lab.data.root import list_cache_folders, resolve_root
from sfao.lab.data.sets import DATASETS, get_description


class Status(StrEnum):
    OK = "ok"
    MISSING = "missing"
    DIFFERS = "differs"


@dataclass(frozen=True)
class FileResult:
    """The outcome for one file or folder."""

    path: Path
    status: Status
    detail: str = ""


def list_datasets(data_root: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Return one row per data set for `sfao data list`; `where` is the folder or file that would be read, or None."""
    root, rows = resolve_root(data_root), []
    for description in DATASETS.values():
        row = {name: getattr(description, name) for name in ("name", "title", "terms", "classes", "train", "test")}
        try:
            layout = description.find_layout(root)
            where = layout.files[0] if len(layout.files) == 1 else layout.folder
        except MissingData:
            where = None
        rows.append({**row, "download": description.download_size, "where": where})
    return rows


def verify_dataset(name: str, data_root: str | os.PathLike[str] | None = None) -> list[FileResult]:
    """Read all files of a data set and compare them with the published ones; read its cached arrays too."""
    description, root = get_description(name), resolve_root(data_root)
    layout = description.find_nearest_layout(root)
    results = verify_files(description, layout)
    if not layout.missing:
        entry = name_entry(name, layout)
        results += [_verify_entry(folder / entry) for folder in list_cache_folders(root) if (folder / entry).exists()]
    return results


def verify_files(description: DatasetDescription, layout: Layout) -> list[FileResult]:
    """Compare the files of a layout with the published ones; where these are not known, read and count the images."""
    if description.known_files:
        return [_verify_file(description, path) for path in layout.files]
    if layout.missing:
        return [FileResult(path, Status.OK if path.exists() else Status.MISSING) for path in layout.files]
    try:
        arrays = layout.read()
    except DataError as error:
        return [FileResult(layout.folder, Status.DIFFERS, str(error))]
    counts = len(arrays.train_labels), len(arrays.test_labels)
    status = Status.OK if description.is_complete(*counts) else Status.DIFFERS
    return [FileResult(layout.folder, status, "{} training and {} test images".format(*counts))]


def _verify_file(description: DatasetDescription, path: Path) -> FileResult:
    known = description.find_known(path)
    assert known is not None, f"{path.name} has no published digest"
    if not path.exists():
        return FileResult(path, Status.MISSING, f"{known.size} bytes")
    if known.matches(path):
        return FileResult(path, Status.OK, known.digest)
    size = path.stat().st_size
    wrong = "other content" if size == known.size else f"{size} bytes"
    return FileResult(path, Status.DIFFERS, f"must have {known.size} bytes and {known.digest}, got {wrong}")


def _verify_entry(entry: Path) -> FileResult:
    try:
        read_entry(entry, verify=True)
    except (DataError, FileNotFoundError) as error:
        shutil.rmtree(entry, ignore_errors=True)
        return FileResult(entry, Status.DIFFERS, f"removed from the cache, made again when it is needed ({error})")
    return FileResult(entry, Status.OK, "cached arrays, as they were written")
