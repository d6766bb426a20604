"""Small texts in the first of several folders that can hold them, each there whole or not at all."""

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def read_all(folders: Sequence[Path], name: str, most: int = 1 << 16) -> list[str]:
    """Return the texts of this name, at most so many bytes of each, where a folder has one that this user may read."""
    texts = []
    for folder in folders:
        # A folder of somebody else's is passed by; a disk that fails is not.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError), (folder / name).open("rb") as file:
            texts.append(file.read(most).decode(errors="replace"))
    return texts


def write_first(folders: Sequence[Path], name: str, text: str) -> bool:
    """Write the text to the first folder that can be written, and tell whether there is one."""
    return any(_write_whole(folder / name, text) for folder in folders)


def _write_whole(path: Path, text: str) -> bool:
    staging = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with staging.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staging, path)
        return True
    except OSError:
        return False
    finally:
        with suppress(OSError):
            staging.unlink(missing_ok=True)
