"""Records that tests change: sealed again, so that the rules of values are seen."""

import json
from pathlib import Path
from typing import Any

from sfao.lab.run.files import seal
from sfao.lab.run.record import RECORD


def read_values(folder: Path) -> dict[str, Any]:
    """Return the values of the record in a folder, without its seal."""
    values: dict[str, Any] = json.loads((folder / RECORD).read_text())
    return {name: value for name, value in values.items() if name not in ("format", "sha256")}


def change_record(folder: Path, **changes: Any) -> None:
    """Give the record in a folder other values, under a digest of their own."""
    (folder / RECORD).write_text(json.dumps(seal({**read_values(folder), **changes})))
