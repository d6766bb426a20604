"""The arrays of a data set, and the files they are read from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfao.lab.data.errors import DataError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
#: The numbers of training and of test images.
Counts = tuple[int, int]


@dataclass(frozen=True)
class Arrays:
    """Images as (N, C, H, W) bytes, labels as whole numbers from 0."""

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels

    def items(self) -> list[tuple[str, NDArray[np.generic]]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


@dataclass(frozen=True)
class FileLayout:
    """One way a data set may lie on disk: the files it needs, and the function that reads them."""

    folder: Path
    files: tuple[Path, ...]
    read: Callable[[], Arrays]
    #: Folders whose times tell that the data changed, for a layout of too many files to look at each.
    watched: tuple[Path, ...] = ()
    #: Counts the training and test images without reading them, where the format allows it.
    count: Callable[[], Counts] | None = None
    #: Lists all files that the data are in, where `files` has folders for them.
    list_contents: Callable[[], Sequence[Path]] | None = None

    @property
    def missing(self) -> list[Path]:
        return [file for file in self.files if not is_there(file)]

    @property
    def contents(self) -> Sequence[Path]:
        """All files that the data are in."""
        return self.files if self.list_contents is None else self.list_contents()

    @property
    def marked(self) -> tuple[Path, ...]:
        """The files and folders that tell that the data changed."""
        return (*self.files, *self.watched)

    @property
    def place(self) -> Path:
        """The folder, or the file when there is only one."""
        return self.files[0] if len(self.files) == 1 else self.folder

    def count_images(self) -> Counts:
        """Return the numbers of training and of test images."""
        if self.count is not None:
            return self.count()
        arrays = self.read()
        return len(arrays.train_labels), len(arrays.test_labels)


def is_there(path: Path) -> bool:
    """Tell whether there is such a file or folder; one that cannot be looked at is an OSError."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def check_labels(path: Path, labels: NDArray[np.integer[Any]], classes: int) -> Labels:
    """Return the labels as int64; a DataError names the first one that is out of range."""
    outside = labels[(labels < 0) | (labels >= classes)]
    if outside.size:
        raise DataError(f"{path}: labels must be in [0, {classes - 1}], got {outside[0]}")
    return labels.astype(np.int64)


def check_same_count(images_path: Path, images: Images, labels_path: Path, labels: Labels) -> None:
    """Raise a DataError unless there are images, with one label for each."""
    if not len(images):
        raise DataError(f"{images_path}: must hold at least one image, got none")
    if len(images) != len(labels):
        raise DataError(
            f"{labels_path}: must hold a label for each of the {len(images)} images of {images_path.name}, "
            f"got {len(labels)}"
        )
