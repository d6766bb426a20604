"""steps.jsonl: one line every few steps; a run that resumes or goes back cuts off the lines of steps it will repeat."""

import json
from pathlib import Path
from typing import Any

from sfao.experiment.files import name_file_in_errors

STEPS = "steps.jsonl"


class Telemetry:
    """Lines are buffered until `flush`, which returns the length of the file: a checkpoint keeps it."""

    def __init__(self, folder: Path, length: int) -> None:
        self._path = folder / STEPS
        self._path.touch()
        self._lines: list[str] = []
        self.cut(length)

    def cut(self, length: int) -> None:
        """Drop what is not flushed, and what the file holds beyond this length."""
        self._lines = []
        with open(self._path, "r+b") as file:
            # Whole lines only, and never beyond the end: truncating a shorter file would pad it with zeros.
            file.truncate(file.read(length).rfind(b"\n") + 1)

    def add(self, **values: Any) -> None:
        self._lines.append(json.dumps(values) + "\n")

    def flush(self) -> int:
        with name_file_in_errors(self._path), open(self._path, "ab") as file:
            file.write("".join(self._lines).encode())
            self._lines = []
            return file.tell()
