"""The folder of a run on a machine that does not see the folder of the comparison: what changes is sent back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sfao.lab.run.checkpoint import LATEST, PREVIOUS
from sfao.lab.run.files import write_atomically

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Changes:
    """The files that are new or have changed, and the names of all that are there."""

    files: dict[str, bytes]
    names: tuple[str, ...]


class Outbox:
    """Finds out what has changed in a folder since it was last asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sent: dict[str, tuple[int, int]] = {}

    def has_checkpoint(self) -> bool:
        """Tell whether a checkpoint is there that has not been sent."""
        try:
            return self._sent.get(LATEST) != _stamp(self.folder / LATEST)
        except FileNotFoundError:
            return False

    def collect(self) -> Changes:
        """Return what has changed; the checkpoint is read first, as the logs that it continues only grow."""
        names = sorted(_list_files(self.folder), key=lambda name: name != LATEST)
        changed: dict[str, bytes] = {}
        for name in names:
            try:
                stamp = _stamp(self.folder / name)
                if self._sent.get(name) != stamp:
                    changed[name] = (self.folder / name).read_bytes()
                    self._sent[name] = stamp
            except FileNotFoundError:
                continue  # replaced just now: the next call finds it
        return Changes(changed, tuple(names))


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files of a run, for a machine that does not see them."""
    return {name: (folder / name).read_bytes() for name in _list_files(folder)}


def write_files(folder: Path, files: Files) -> None:
    """Write the files, each whole or not at all."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, data)


def apply_changes(folder: Path, changes: Changes) -> None:
    """Make a folder like the one that the changes are of; the checkpoint comes last, after the logs that it continues.

    As where a run saves its own, the checkpoint before it is kept until the run ends.
    """
    write_files(folder, {name: data for name, data in changes.files.items() if name != LATEST})
    if LATEST in changes.files:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / LATEST, changes.files[LATEST], keep=folder / PREVIOUS)
    kept = {*changes.names, *((PREVIOUS,) if LATEST in changes.names else ())}
    for name in _list_files(folder, previous=True):
        if name not in kept:
            (folder / name).unlink(missing_ok=True)


def _list_files(folder: Path, previous: bool = False) -> list[str]:
    """Return the names of the files of a run: no lock, nothing half written, no older checkpoint."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and (previous or path.name != PREVIOUS)
    ]


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_ino
