"""The files that a data set is read from, checked against their publisher's digests and their seal."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.digests import compute_digest, digest_text, list_digests
from sfao.lab.data.errors import DataError
from sfao.lab.data.formats.file_layout import Arrays, FileLayout
from sfao.lab.data.proofs import drop_proof, is_proven, keep_proof, take_marks
from sfao.lab.data.publication import KnownFile
from sfao.lab.data.root import list_cache_folders
from sfao.lab.data.seal import DamagedSeal, Origin, Seal, name_seal, parse_listing, read_listing, read_seal, write_seal


@dataclass(frozen=True)
class Source:
    """One layout of a data set under a root, with the seals that are kept of it."""

    description: DatasetDescription
    layout: FileLayout
    root: Path

    @cached_property
    def folders(self) -> list[Path]:
        return list_cache_folders(self.root)

    @cached_property
    def seal_name(self) -> str:
        return name_seal(self.description.name, self.layout.folder, self.root)

    @property
    def seal_path(self) -> Path:
        return self.folders[0] / f"{self.seal_name}.seal"

    def recall(self) -> Seal | None:
        """Return the seal of files that are untouched since they were last checked; None when they must be read."""
        try:
            seal = read_seal(self.folders, self.seal_name)
        except DamagedSeal:
            return None
        if seal is None or not is_proven(self.folders, self.seal_name, seal.digest, take_marks(self.layout.marked)):
            return None
        return seal

    def check(self) -> Seal:
        """Read all files and return their seal; a DataError names what must not be, and says what to do."""
        marks = take_marks(self.layout.marked)
        listing = list_digests(self.layout.folder, self.layout.contents)
        seal = self._judge(listing)
        keep_proof(self.folders, self.seal_name, seal.digest, marks)
        return seal

    def read(self) -> tuple[Seal, Arrays]:
        """Check the files and decode them; a DataError says that they changed meanwhile."""
        marks = take_marks(self.layout.marked)
        seal = self.check()
        arrays = self.layout.read()
        if take_marks(self.layout.marked) != marks:
            raise DataError(f"{self.layout.folder}: must not change while it is read; try again once it is written")
        return seal, arrays

    def accept(self) -> Seal:
        """Seal the files as they are, if they can be read."""
        self.layout.read()
        return self.seal(Origin.ACCEPTED)

    def seal(self, origin: Origin) -> Seal:
        """Seal the files as they are; those of published digests are published whatever is said."""
        self.distrust()
        listing = list_digests(self.layout.folder, self.layout.contents)
        published = 0 < self._count_published(listing) == len(self.layout.files)
        return write_seal(self.folders, self.seal_name, listing, Origin.PUBLISHED if published else origin)

    def distrust(self) -> None:
        """Have the files read again when they are next used."""
        drop_proof(self.folders, self.seal_name)

    def list_changes(self, listing: str, seal: Seal) -> list[Path]:
        """Return the files that are not as they were sealed; the folder where it is not known which."""
        if digest_text(listing) == seal.digest:
            return []
        sealed = read_listing(self.folders, self.seal_name, seal)
        if sealed is None:
            return [self.layout.folder]
        found = parse_listing(listing)
        changed = (path for path in {**sealed, **found} if sealed.get(path) != found.get(path))
        return [self.layout.folder / path for path in changed] or [self.layout.folder]

    def _judge(self, listing: str) -> Seal:
        """Return the seal that the files of a list keep, or get."""
        published = self._count_published(listing)
        is_published = 0 < published == len(self.layout.files)
        try:
            seal = read_seal(self.folders, self.seal_name)
        except DamagedSeal:
            if not is_published:
                raise DataError(f"{self.seal_path}: must be as it was written, got other bytes\n{self._how}") from None
            seal = None
        if seal is not None and digest_text(listing) == seal.digest:
            return seal
        if is_published:
            return write_seal(self.folders, self.seal_name, listing, Origin.PUBLISHED)
        if seal is not None:
            first, *others = self.list_changes(listing, seal)
            more = f" (and {len(others)} more)" if others else ""
            raise DataError(
                f"{first}{more}: must be as it was {seal.origin} on {seal.day}, got other bytes\n{self._how}"
            )
        if published:
            raise DataError(
                f"{self._find_unpublished(listing)}: must be the publisher's as other files of the folder are, "
                f"got other bytes\n{self._how}"
            )
        self.layout.read()  # what cannot be read is not sealed: it is to be put right
        return write_seal(self.folders, self.seal_name, listing, Origin.FIRST_USE)

    @property
    def _how(self) -> str:
        name = self.description.name
        return f"Put it right, or take the data as they are: sfao data verify {name} --accept --data-root {self.root}"

    def _count_published(self, listing: str) -> int:
        return sum(self._is_published(path, digest) for path, digest in parse_listing(listing).items())

    def _find_unpublished(self, listing: str) -> Path:
        listed = parse_listing(listing).items()
        return next(self.layout.folder / path for path, digest in listed if not self._is_published(path, digest))

    def _is_published(self, path: str, digest: str) -> bool:
        known = find_known(self.description.known_files, path)
        if known is None or known.digest.startswith("sha256:"):
            return known is not None and known.digest == digest
        return compute_digest(self.layout.folder / path, like=known.digest) == known.digest


def find_known(files: Sequence[KnownFile], path: str) -> KnownFile | None:
    """Return the published file of a path, by its name."""
    return next((file for file in files if file.name == Path(path).name), None)
