"""Verify the files of a data set."""

import os

from sfao.data.file_check import FileResult
from sfao.data.root import resolve_root
from sfao.data.sets import get_description


def verify_dataset(name: str, data_root: str | os.PathLike[str] | None = None) -> list[FileResult]:
    """Compare each file of a data set with the published one.

    When several layouts are there, the one that load_dataset would read.
    """
    description = get_description(name)
    return description.verify(description.find_nearest_layout(resolve_root(data_root)))
