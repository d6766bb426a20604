"""Seals: the digests that the files of a data set had when they were fetched, accepted or first used.

Of published data every file must have its publisher's digest. Other data, a subset or one's own, are taken as they
are the first time; from then on they must stay what they were, until somebody accepts the change.

NAME-FOLDER.files, in a cache folder, lists the digest of every file; NAME-FOLDER.seal has the digest of that list.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from os.path import relpath
from pathlib import Path

from sfao.lab.data.digests import digest_text
from sfao.lab.data.small_files import read_all, write_first
from sfao.lab.safe_io import parse_json


class Origin(StrEnum):
    """The reason to believe in files."""

    PUBLISHED = "fetched"
    ACCEPTED = "accepted"
    FIRST_USE = "first used"


@dataclass(frozen=True)
class Seal:
    """What is known of the files of a data set."""

    #: Of the list of their digests.
    digest: str
    origin: Origin
    #: When they were sealed, to the microsecond.
    since: str

    @property
    def day(self) -> str:
        return self.since.partition("T")[0]


class DamagedSeal(Exception):  # noqa: N818, a message to the caller, not an error of its own
    """A seal that is not as it was written."""


def name_seal(name: str, folder: Path, root: Path) -> str:
    """Return the name of the seals of a folder: the same wherever the root lies."""
    return "-".join((name, *Path(relpath(folder, root)).parts))


def read_seal(folders: Sequence[Path], name: str) -> Seal | None:
    """Return the last seal that was written; a DamagedSeal where one is not whole, None where there is none."""
    seals = [_parse(text) for text in read_all(folders, f"{name}.seal")]
    return max(seals, key=lambda seal: seal.since, default=None)


def write_seal(folders: Sequence[Path], name: str, listing: str, origin: Origin) -> Seal:
    """Seal the files that are listed; where no folder can be written, for this time only."""
    seal = Seal(digest_text(listing), origin, datetime.now(UTC).isoformat())
    content = asdict(seal)
    if write_first(folders, f"{name}.files", listing):
        write_first(folders, f"{name}.seal", json.dumps({**content, "check": _check(content)}) + "\n")
    return seal


def read_listing(folders: Sequence[Path], name: str, seal: Seal) -> dict[str, str] | None:
    """Return {path: digest} of the files as they were sealed; None when the list is lost or damaged."""
    for text in read_all(folders, f"{name}.files", most=1 << 28):
        if digest_text(text) == seal.digest:
            return parse_listing(text)
    return None


def parse_listing(listing: str) -> dict[str, str]:
    """Return {path: digest} of a list."""
    pairs = (line.split("  ", 1) for line in listing.splitlines())
    return {path: digest for digest, path in pairs}


def _parse(text: str) -> Seal:
    try:
        content = parse_json(text)
        check = content.pop("check")
        if text != json.dumps({**content, "check": check}) + "\n" or check != _check(content):
            raise DamagedSeal
        return Seal(content["digest"], Origin(content["origin"]), content["since"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedSeal from error


def _check(content: dict[str, str]) -> str:
    return digest_text(json.dumps(content))
