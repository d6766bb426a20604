"""Download a data set; files that are there already are left alone."""

import logging
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

from sfao.lab.data.cache import load_layout
from sfao.lab.data.description import DatasetDescription, KnownFile
from sfao.lab.data.errors import DataError, DownloadError
from sfao.lab.data.root import resolve_root
from sfao.lab.data.sets import get_description
from sfao.lab.data.verify import FileResult, Status, verify_dataset, verify_files

#: Called with a piece of work, the bytes done, and the bytes in all (None if unknown).
Progress = Callable[[str, int, int | None], None]

#: Between two pieces of an answer.
TIMEOUT_SECONDS = 30
#: Larger than any published archive unpacks to.
MAX_UNPACKED = 4 * 2**30
MAX_MEMBERS = 200_000


def get_dataset(
    name: str, data_root: str | os.PathLike[str] | None = None, *, progress: Progress = lambda *_: None
) -> list[FileResult]:
    """Download a data set into the data root and verify it; no file that is there already is replaced."""
    description, root = get_description(name), resolve_root(data_root)
    layout = description.find_nearest_layout(root)
    results = verify_files(description, layout)
    if description.embedded or all(result.status is Status.OK for result in results):
        return results
    folder = root / description.folder
    for result in results:
        if result.status is Status.DIFFERS and folder == layout.folder:
            raise DataError(
                f"{result.path} is not the published file: {result.detail}\n"
                "It is left alone: move it away, or give another data root"
            )
    if description.downloads[0].name.endswith((".tar.gz", ".zip")):
        is_new = not folder.exists()
        _get_archive(description, root, progress)
        # The archive is the published one: that holds for data of which no other digest is known.
        load_layout(description, description.find_layout(root), root, published=is_new)
    else:
        for file in description.downloads:
            if not (folder / file.name).exists() and not (folder / file.name).with_suffix("").exists():
                download(file, description.mirrors, folder, progress)
    return verify_dataset(name, root)


def download(file: KnownFile, mirrors: Iterable[str], folder: Path, progress: Progress) -> None:
    """Download a file into a folder from the first mirror that has it; it appears whole and with its digest."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    problems = []
    for mirror in mirrors:
        downloader = pooch.HTTPDownloader(progressbar=_Bar(file, progress), chunk_size=1 << 16, timeout=TIMEOUT_SECONDS)
        try:
            pooch.retrieve(mirror + file.name, file.digest, file.name, folder, downloader=downloader)
            return
        except (OSError, ValueError) as error:  # requests' errors are OSErrors; a ValueError is of another digest
            problems.append(f"{mirror}: {' '.join(str(error).split())[:200]}")
    raise DownloadError(f"{file.name} could not be downloaded\n{'; '.join(problems)}")


class _Bar:
    """The progress bar that pooch updates; ends an answer that is longer than the file."""

    def __init__(self, file: KnownFile, progress: Progress) -> None:
        self.file, self.progress = file, progress
        self.done, self.total = 0, file.size

    def update(self, count: int) -> None:
        self.done += count
        if self.done > self.file.size + (1 << 16):  # pooch counts whole chunks
            raise ValueError(f"must send {self.file.size} bytes, got more")
        self.progress(self.file.name, min(self.done, self.file.size), self.file.size)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def _get_archive(description: DatasetDescription, root: Path, progress: Progress) -> None:
    """Download and unpack the archive; a published one that lies in the root already is used, and kept."""
    (file,) = description.downloads
    archive, folder = root / file.name, root / description.folder
    given = archive.exists()
    if not given:
        download(file, description.mirrors, root, progress)
    elif not file.matches(archive):
        raise DataError(f"{archive}: must be {file.digest}, got another file; it is left alone: move it away")
    progress(f"unpacking {file.name}", 0, None)
    # On the disk of its destination, so that a rename is enough.
    with tempfile.TemporaryDirectory(prefix=f".get-{description.name}-", dir=root) as staging:
        extract(archive, Path(staging))
        unpacked = Path(staging, description.folder)
        if not unpacked.is_dir():
            raise DataError(f"{archive}: must hold the folder {description.folder}, got none")
        folder.mkdir(exist_ok=True)
        for item in unpacked.iterdir():
            if not (folder / item.name).exists():
                item.rename(folder / item.name)
    if not given:
        archive.unlink()


def extract(archive: Path, folder: Path) -> None:
    """Unpack a .tar.gz or .zip file of plain files and folders; other members are refused before a byte is written."""
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as opened:
                members = opened.infolist()
                _check(archive, ((each.filename, each.file_size, _is_plain(each)) for each in members))
                opened.extractall(folder)
        else:
            with tarfile.open(archive) as tar:
                _check(archive, ((each.name, each.size, each.isfile() or each.isdir()) for each in tar))
                tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
                tar.extractall(folder)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{archive}: must be a whole archive, got a truncated or damaged one ({error})") from error


def _is_plain(member: zipfile.ZipInfo) -> bool:
    return not stat.S_ISLNK(member.external_attr >> 16)


def _check(archive: Path, members: Iterable[tuple[str, int, bool]]) -> None:
    """Refuse an archive at the first member that is wrong or too much."""
    total = 0
    for count, (name, size, is_plain) in enumerate(members, start=1):
        path, windows = PurePosixPath(name), PureWindowsPath(name)
        # A backslash or a drive letter is part of a name here and a path elsewhere.
        if path.is_absolute() or ".." in path.parts or windows.drive or "\\" in name:
            raise DataError(f"{archive}: members must stay inside the folder, got {name!r}; nothing was unpacked")
        if not is_plain:
            raise DataError(f"{archive}: members must be files or folders, got {name!r}; nothing was unpacked")
        total += size
        if total > MAX_UNPACKED or count > MAX_MEMBERS:
            limit = f"{MAX_MEMBERS} members of {MAX_UNPACKED} bytes in all"
            raise DataError(f"{archive}: must unpack to at most {limit}, got more; nothing was unpacked")
