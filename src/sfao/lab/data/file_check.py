"""Comparing files with the published ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sfao.lab.data.digests import compute_digest
from sfao.lab.data.errors import DataError
from sfao.lab.data.formats.file_layout import FileLayout, is_there
from sfao.lab.data.publication import KnownFile


class Status(StrEnum):
    """The outcome of a comparison."""

    OK = "ok"
    MISSING = "missing"
    #: Readable, with fewer images than published: a subset for development.
    PARTIAL = "partial"
    DIFFERS = "differs"
    #: Not the publisher's, and as it was when somebody accepted it.
    ACCEPTED = "accepted"


@dataclass(frozen=True)
class FileResult:
    """The outcome for one file or folder."""

    path: Path
    status: Status
    detail: str = ""


@dataclass(frozen=True)
class DigestCheck:
    """Verifies a layout by the digests of its files; `read` tells a subset from a damaged file."""

    files: Sequence[KnownFile]
    read: Callable[[Path], object]

    def __call__(self, layout: FileLayout) -> list[FileResult]:
        known = {file.name: file for file in self.files}
        return [self._check(path, known[path.name]) for path in layout.files]

    def _check(self, path: Path, known: KnownFile) -> FileResult:
        if not is_there(path):
            return FileResult(path, Status.MISSING, f"{known.size} bytes")
        found = compute_digest(path, like=known.digest)
        if found == known.digest:
            return FileResult(path, Status.OK, known.digest)
        try:
            self.read(path)
        except DataError as error:
            return FileResult(path, Status.DIFFERS, str(error))
        if path.stat().st_size < known.size:
            return FileResult(path, Status.PARTIAL, f"readable, {path.stat().st_size} of {known.size} bytes")
        return FileResult(path, Status.DIFFERS, f"readable, but must be {known.digest}, got {found}")
