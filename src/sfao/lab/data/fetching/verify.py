"""Verify the files of a data set, and what is cached of them; all are read, whatever is remembered of them."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sfao.lab.data.cache import DamagedEntry, check_entry, distrust_entry, list_entries
from sfao.lab.data.digests import list_digests
from sfao.lab.data.errors import MissingData, name_read_errors
from sfao.lab.data.file_check import FileResult, Status
from sfao.lab.data.root import resolve_root
from sfao.lab.data.seal import DamagedSeal, Origin, Seal, read_listing, read_seal
from sfao.lab.data.sets import get_description
from sfao.lab.data.source import Source

#: Statuses that need nobody's attention.
GOOD = (Status.OK, Status.ACCEPTED)


def verify_dataset(name: str, data_root: str | os.PathLike[str] | None = None) -> list[FileResult]:
    """Compare each file of a data set with the published one, and with itself as it was when it was sealed.

    When several layouts are there, the one that load_dataset would read.
    """
    description = get_description(name)
    root = resolve_root(data_root)
    with name_read_errors(root):
        layout = description.find_nearest_layout(root)
        results = description.verify(layout)
        if layout.missing or description.embedded:
            return results
        source = Source(description, layout, root)
        return [*_compare_with_seal(source, results), *_verify_cache(name, source.folders)]


def compare_with_published(name: str, data_root: str | os.PathLike[str] | None = None) -> list[FileResult]:
    """Compare each file of a data set with the published one, and with nothing else."""
    description = get_description(name)
    root = resolve_root(data_root)
    with name_read_errors(root):
        return description.verify(description.find_nearest_layout(root))


def accept_dataset(name: str, data_root: str | os.PathLike[str] | None = None) -> list[FileResult]:
    """Take the files of a data set as they are, if they can be read, and verify them."""
    description = get_description(name)
    root = resolve_root(data_root)
    if description.embedded:
        raise MissingData(f"`{name}` is part of an installed package: there is nothing to accept")
    with name_read_errors(root):
        Source(description, description.find_layout(root), root).accept()
    return verify_dataset(name, data_root)


def _compare_with_seal(source: Source, results: list[FileResult]) -> list[FileResult]:
    try:
        seal = read_seal(source.folders, source.seal_name)
    except DamagedSeal:
        return [*results, FileResult(source.seal_path, Status.DIFFERS, "a seal must be as it was written")]
    if seal is None:
        return results
    changed = source.list_changes(list_digests(source.layout.folder, source.layout.contents), seal)
    if changed:
        source.distrust()
    elif read_listing(source.folders, source.seal_name, seal) is None:
        path = source.seal_path.with_suffix(".files")
        return [*results, FileResult(path, Status.DIFFERS, "the list of digests must be as it was sealed")]
    return _merge(results, changed, seal)


def _merge(results: list[FileResult], changed: Sequence[Path], seal: Seal) -> list[FileResult]:
    detail = f"must be as it was {seal.origin} on {seal.day}, got other bytes"
    known = {result.path for result in results}
    merged = [_merge_one(result, result.path in changed, seal, detail) for result in results]
    return [*merged, *(FileResult(path, Status.DIFFERS, detail) for path in changed if path not in known)]


def _merge_one(result: FileResult, changed: bool, seal: Seal, detail: str) -> FileResult:
    if result.status is Status.OK and not changed:
        return result
    if changed:
        # What is published is right, whatever was sealed before.
        return result if result.status is Status.OK else replace(result, status=Status.DIFFERS, detail=detail)
    if seal.origin is Origin.ACCEPTED and result.status in (Status.PARTIAL, Status.DIFFERS):
        return replace(result, status=Status.ACCEPTED, detail=f"not the publisher's, as it was accepted on {seal.day}")
    return replace(result, detail=f"{result.detail}; as it was {seal.origin} on {seal.day}")


def _verify_cache(name: str, folders: Sequence[Path]) -> list[FileResult]:
    return [_verify_entry(entry, folders) for entry in list_entries(name, folders)]


def _verify_entry(entry: Path, folders: Sequence[Path]) -> FileResult:
    try:
        check_entry(entry)
    except FileNotFoundError as error:
        return FileResult(Path(error.filename), Status.MISSING, "of the cache: made again when it is next needed")
    except DamagedEntry as damaged:
        distrust_entry(entry, folders)
        return FileResult(damaged.args[0], Status.DIFFERS, "damaged in the cache: made again when it is next needed")
    return FileResult(entry, Status.OK, "cached arrays, as they were written")
