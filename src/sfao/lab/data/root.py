"""The folders of this machine that hold data."""

import os
from pathlib import Path

import platformdirs

from sfao.lab.data.digests import digest_text

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
    """List the folders for cached arrays, the best first: next to the data, else in the user's cache folder."""
    return [root / ".sfao-cache", get_user_cache() / "arrays" / digest_text(str(root.resolve()))[7:23]]
