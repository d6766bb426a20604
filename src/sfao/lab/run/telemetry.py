"""steps.jsonl: one line every few steps; a run that resumes or goes back cuts off the lines of steps it will repeat."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from sfao.lab.run.lock import check_still_held
from sfao.lab.safe_io import name_file_in_errors, open_file, read_file

STEPS = "steps.jsonl"


class Telemetry:
    """Lines are in the file as soon as they are added; a checkpoint keeps its length, to cut off what comes after.

    With the length goes the digest of what is kept, by which damage is known.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / STEPS
        open_file(self._path, os.O_RDWR | os.O_CREAT, "r+b").close()

    def cut(self, length: int, digest: str = "") -> bool:
        """Drop what the file holds beyond this length, and all of it where the rest has another digest than this.

        Returns whether it had; without a digest, of a checkpoint of an older version, what is there is kept.
        """
        with name_file_in_errors(self._path), open_file(self._path, os.O_RDWR, "r+b") as file:
            # Whole lines only, and never beyond the end: truncating a shorter file would pad it with zeros.
            kept = file.read(length)
            kept = kept[: kept.rfind(b"\n") + 1]
            is_whole = digest in ("", sha256(kept).hexdigest())
            kept = kept if is_whole else b""
            file.truncate(len(kept))
        self.length, self._digest = len(kept), sha256(kept)
        return is_whole

    def add(self, **values: Any) -> None:
        line = (json.dumps(values) + "\n").encode()
        check_still_held(self._path.parent)
        with name_file_in_errors(self._path), open_file(self._path, os.O_WRONLY | os.O_APPEND, "ab") as file:
            file.write(line)
        self._digest.update(line)
        self.length += len(line)

    def sync(self) -> None:
        """Flush the lines to the disk: a checkpoint counts on them."""
        with name_file_in_errors(self._path), open_file(self._path, os.O_RDONLY) as file:
            os.fsync(file.fileno())

    @property
    def digest(self) -> str:
        """The digest of all lines."""
        return self._digest.hexdigest()


def digest_steps(folder: Path) -> str:
    """Return the digest of the lines that a run left; empty where it left none."""
    try:
        return sha256(read_file(folder / STEPS)).hexdigest()
    except FileNotFoundError:
        return ""
