"""steps.jsonl: one line every few steps; a run that resumes or goes back cuts off the lines of steps it will repeat."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sfao.experiment.files import name_file_in_errors

STEPS = "steps.jsonl"


class Telemetry:
    """Lines are in the file as soon as they are added; a checkpoint keeps its length, to cut off what comes after."""

    def __init__(self, folder: Path, length: int) -> None:
        self._path = folder / STEPS
        self._path.touch()
        self.cut(length)

    def cut(self, length: int) -> None:
        """Drop what the file holds beyond this length."""
        with open(self._path, "r+b") as file:
            # Whole lines only, and never beyond the end: truncating a shorter file would pad it with zeros.
            file.truncate(file.read(length).rfind(b"\n") + 1)

    def add(self, **values: Any) -> None:
        self.add_lines([values])

    def add_lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        text = "".join(json.dumps(values) + "\n" for values in lines).encode()
        with name_file_in_errors(self._path), open(self._path, "ab") as file:
            file.write(text)

    @property
    def length(self) -> int:
        return self._path.stat().st_size
