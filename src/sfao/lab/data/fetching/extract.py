"""Unpacking archives into a folder, and nowhere else.

A member that climbs out of the folder, or is anything but a plain file or a folder, is refused before the
first byte is written.
"""

import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from sfao.lab.data.errors import DataError
from sfao.lab.data.fetching.progress import Progress, ignore_progress

#: More than any published archive unpacks to, and has members; a bomb is refused before it fills the disk.
LARGEST = 4 * 2**30
MOST_MEMBERS = 200_000


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    kind: str  # "file", "folder", or what else it is
    open: Callable[[], IO[bytes] | None]


def extract(archive: Path, folder: Path, *, largest: int | None = None, progress: Progress = ignore_progress) -> None:
    """Unpack a .tar.gz, .tgz or .zip file, of at most `largest` bytes once it is unpacked, into a folder."""
    most = LARGEST if largest is None else largest
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as opened_zip:
                _extract_members(
                    archive, _check_members(archive, _list_zip_members(opened_zip), most), folder, progress
                )
        else:
            with tarfile.open(archive, "r:*") as opened_tar:
                _extract_members(
                    archive, _check_members(archive, _list_tar_members(opened_tar), most), folder, progress
                )
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as error:
        raise DataError(f"{archive}: must be a whole archive, got a truncated or damaged one ({error})") from error


def _list_tar_members(archive: tarfile.TarFile) -> Iterator[_Member]:
    def get_kind(member: tarfile.TarInfo) -> str:
        if member.isfile():
            return "file"
        return "folder" if member.isdir() else "link" if member.islnk() or member.issym() else "special file"

    for member in archive:  # one after the other: the next is looked for only once this one is checked
        yield _Member(member.name, member.size, get_kind(member), partial(archive.extractfile, member))


def _list_zip_members(archive: zipfile.ZipFile) -> Iterator[_Member]:
    def get_kind(member: zipfile.ZipInfo) -> str:
        if member.is_dir():
            return "folder"
        return "link" if stat.S_ISLNK(member.external_attr >> 16) else "file"

    for member in archive.infolist():
        yield _Member(member.filename, member.file_size, get_kind(member), partial(archive.open, member))


def _check_members(archive: Path, members: Iterable[_Member], largest: int) -> list[_Member]:
    """Return all members, or refuse the archive at the first that is wrong or too much."""
    checked: list[_Member] = []
    total = 0
    for member in members:
        _check_member(archive, member)
        checked.append(member)
        total += member.size
        if total > largest:
            raise DataError(f"{archive}: must unpack to at most {largest} bytes, got {total}")
        if len(checked) > MOST_MEMBERS:
            raise DataError(f"{archive}: must have at most {MOST_MEMBERS} members, got more")
    return checked


def _extract_members(archive: Path, members: list[_Member], folder: Path, progress: Progress) -> None:
    total = sum(member.size for member in members)
    done = 0
    for member in members:
        _write_member(member, folder / member.name)
        done += member.size
        progress(f"unpacking {archive.name}", done, total)


def _check_member(archive: Path, member: _Member) -> None:
    path = PurePosixPath(member.name)
    windows = PureWindowsPath(member.name)
    # A backslash or a drive letter is part of a name here and a path elsewhere: refused everywhere.
    if path.is_absolute() or ".." in path.parts or windows.drive or "\\" in member.name:
        raise DataError(f"{archive}: members must stay inside the folder, got {member.name!r}; nothing was unpacked")
    if member.kind not in ("file", "folder"):
        raise DataError(
            f"{archive}: members must be files or folders, got the {member.kind} {member.name!r}; nothing was unpacked"
        )


def _write_member(member: _Member, target: Path) -> None:
    if member.kind == "folder":
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = member.open()
    if source is not None:
        with source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
