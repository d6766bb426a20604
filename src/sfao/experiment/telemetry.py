"""steps.jsonl: a line every few steps, and nothing of what a resumed run will do again."""

import json
from pathlib import Path
from typing import Any

from sfao.experiment.files import named_errors

STEPS = "steps.jsonl"


class Telemetry:
    """Lines are buffered until `flush`, which returns the length of the file: a checkpoint keeps it."""

    def __init__(self, folder: Path, length: int) -> None:
        self._path = folder / STEPS
        self._path.touch()
        with open(self._path, "r+b") as file:
            # Whole lines only, and no more than there are: truncating a file that lost some would pad it with zeros.
            file.truncate(file.read(length).rfind(b"\n") + 1)
        self._lines: list[str] = []

    def add(self, **values: Any) -> None:
        self._lines.append(json.dumps(values) + "\n")

    def flush(self) -> int:
        with named_errors(self._path), open(self._path, "ab") as file:
            file.write("".join(self._lines).encode())
            self._lines = []
            return file.tell()
