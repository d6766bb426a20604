"""Where data lies on this machine."""

import os
from pathlib import Path

import platformdirs

#: The environment variable that names the data root.
VARIABLE = "SFAO_DATA"


def resolve_root(data_root: str | os.PathLike[str] | None = None) -> Path:
    """The data root: the argument, else $SFAO_DATA, else the user's cache folder."""
    chosen = data_root or os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else user_cache()


def user_cache() -> Path:
    return Path(platformdirs.user_cache_dir("sfao", appauthor=False))


def cache_folders(root: Path) -> list[Path]:
    """Where arrays may be cached, the best place first: next to the data, else in the user's cache folder."""
    return [root / ".sfao-cache", user_cache() / "arrays"]
