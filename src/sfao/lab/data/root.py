"""The folders of this machine that hold data."""

import os
from hashlib import sha256
from pathlib import Path

import platformdirs

#: The environment variable that names the data root.
VARIABLE = "SFAO_DATA"


def resolve_root(data_root: str | os.PathLike[str] | None = None) -> Path:
    """Return the data root: the argument, else $SFAO_DATA, else the user's cache folder."""
    chosen = data_root or os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else get_user_cache()


def get_user_cache() -> Path:
    """Return the user's cache folder."""
    return Path(platformdirs.user_cache_dir("sfao", appauthor=False))


def list_cache_folders(root: Path) -> list[Path]:
    """List the folders for cached arrays, the preferred one first: next to the data, then the user's cache folder."""
    return [root / ".sfao-cache", get_user_cache() / "arrays" / sha256(str(root.resolve()).encode()).hexdigest()[:16]]
