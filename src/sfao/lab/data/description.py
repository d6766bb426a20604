"""The description of a data set: its numbers, the files it is read from, and where they are published. No torch."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sfao.lab.data.arrays import Arrays
from sfao.lab.data.errors import DataError, MissingData


@dataclass(frozen=True)
class KnownFile:
    """A file as published; the digest is written "sha256:440f..."."""

    name: str
    size: int
    digest: str

    def matches(self, path: Path) -> bool:
        """Return whether a file has the published size and digest."""
        if path.stat().st_size != self.size:
            return False
        algorithm = self.digest.partition(":")[0]
        with path.open("rb") as file:
            # MD5, which some publishers give, finds damage; it doesn't stop a forger.
            found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
        return self.digest == f"{algorithm}:{found.hexdigest()}"


def parse_known(table: str, algorithm: str = "sha256") -> tuple[KnownFile, ...]:
    """Return the files of a table: name, size and digest in each line."""
    rows = [line.split() for line in table.strip().splitlines()]
    return tuple(KnownFile(name, int(size), f"{algorithm}:{digest}") for name, size, digest in rows)


@dataclass(frozen=True)
class Layout:
    """One way a data set may lie on disk: the files it needs, and the function that reads them."""

    folder: Path
    files: tuple[Path, ...]
    read: Callable[[], Arrays]
    #: Folders whose times of change count too, where the files are too many to look at each.
    watched: tuple[Path, ...] = ()

    @property
    def missing(self) -> list[Path]:
        return [file for file in self.files if not file.exists()]


@dataclass(frozen=True)
class DatasetDescription:
    """One data set. `train` and `test` are the published numbers of images."""

    name: str
    title: str
    terms: str
    classes: int
    train: int
    test: int
    #: Mean and standard deviation of each channel, for pixels divided by 255.
    mean: tuple[float, ...]
    std: tuple[float, ...]
    #: Lists the ways the files may lie under a data root, the preferred one first.
    list_layouts: Callable[[Path], Sequence[Layout]]
    #: Files whose published digests are known.
    known_files: tuple[KnownFile, ...] = ()
    #: Files to download from one of the mirrors: an archive that holds `folder`, or files to put there.
    downloads: tuple[KnownFile, ...] = ()
    mirrors: tuple[str, ...] = ()
    folder: str = ""

    @property
    def embedded(self) -> bool:
        """True for data inside this package: few images, never to be passed off as the full set."""
        return not self.downloads

    @property
    def download_size(self) -> int:
        return sum(file.size for file in self.downloads)

    def is_complete(self, train: int, test: int) -> bool:
        """Return whether there are at least as many images as published."""
        return train >= self.train and test >= self.test

    def find_known(self, path: Path) -> KnownFile | None:
        """Return the published file of this name."""
        return next((file for file in self.known_files if file.name == path.name), None)

    def find_layout(self, root: Path) -> Layout:
        """Return the first layout whose files are all there."""
        layouts = self.list_layouts(root)
        for layout in layouts:
            if not layout.missing:
                return layout
        begun = next((layout for layout in layouts if len(layout.missing) < len(layout.files)), None)
        if begun is None:
            reason = f"`{self.name}` was not found; looked in {', '.join(str(layout.folder) for layout in layouts)}"
        else:
            reason = (
                f"`{self.name}` is incomplete: {begun.folder} lacks {', '.join(path.name for path in begun.missing)}"
            )
        raise MissingData(f"{reason}\nGet it with: sfao data get {self.name} --data-root {root}")

    def find_nearest_layout(self, root: Path) -> Layout:
        """Return the layout that lacks the smallest share of its files, the first of several."""
        return min(self.list_layouts(root), key=lambda layout: len(layout.missing) / len(layout.files))

    def check_published(self, layout: Layout) -> bool:
        """Return whether all files are the published ones.

        No published file is fine: a subset, or data of your own. Published ones beside others mean that the others are
        damaged, which is a DataError.
        """
        others = [path for path in layout.files if (known := self.find_known(path)) is None or not known.matches(path)]
        if 0 < len(others) < len(layout.files):
            raise DataError(
                f"{others[0]}: must be the published file, like other files of the folder, got other bytes\n"
                f"Move it away and get it again: sfao data get {self.name}"
            )
        return not others
