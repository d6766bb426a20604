"""The format of CIFAR-10 and CIFAR-100: a python version (pickled dictionaries) and a binary one (plain records)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfao.lab.data.errors import DataError
from sfao.lab.data.formats.file_layout import Arrays, FileLayout, Images, Labels, check_labels, check_same_count
from sfao.lab.data.formats.restricted_pickle import load_pickle

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
#: No file is believed to hold more images.
MOST = 50000
#: A pickle may take two bytes for a pixel, and has names of files beside them.
MOST_PICKLED = MOST * (2 * PIXELS + 200)

#: The images and labels of one file.
Batch = tuple[Images, Labels]

#: The folders on the web that have both data sets.
MIRRORS = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
TERMS = "Krizhevsky 2009; no licence stated, to be cited"


@dataclass(frozen=True)
class CifarFormat:
    """The differences between the two data sets."""

    classes: int
    python_folder: str
    binary_folder: str
    #: The stems of the training files, and of the test file.
    train: tuple[str, ...]
    test: str
    #: The key of the labels in the python version.
    labels: bytes
    #: Bytes before the pixels of a binary record; the label is the last of them.
    label_bytes: int

    def list_layouts(self, root: Path) -> list[FileLayout]:
        """List both versions, the binary one first: it is read faster, and there is no pickle in it."""
        return [
            self._make_layout(root / self.binary_folder, ".bin", self.count_binary),
            self._make_layout(root / self.python_folder, ""),
        ]

    def _make_layout(self, folder: Path, suffix: str, count_batch: Callable[[Path], int] | None = None) -> FileLayout:
        train = [folder / (stem + suffix) for stem in self.train]
        test = folder / (self.test + suffix)

        def read() -> Arrays:
            images, labels = zip(*(self.read_batch(path) for path in train), strict=True)
            return Arrays(np.concatenate(images), np.concatenate(labels), *self.read_batch(test))

        if count_batch is None:
            return FileLayout(folder, (*train, test), read)
        return FileLayout(folder, (*train, test), read, count=lambda: (sum(map(count_batch, train)), count_batch(test)))

    def read_batch(self, path: Path) -> Batch:
        """Read a file of either version."""
        return self._read_binary(path) if path.suffix == ".bin" else self._read_python(path)

    def count_binary(self, path: Path) -> int:
        """Return the number of records that a file of its size holds."""
        record, size = self.label_bytes + PIXELS, path.stat().st_size
        if not size or size % record:
            raise DataError(f"{path}: must hold whole records of {record} bytes, got {size} bytes")
        if size // record > MOST:
            raise DataError(f"{path}: must hold at most {MOST} records, got {size // record}")
        return size // record

    def _read_binary(self, path: Path) -> Batch:
        count = self.count_binary(path)
        rows = np.fromfile(path, np.uint8, count * (self.label_bytes + PIXELS)).reshape(count, -1)
        labels = check_labels(path, rows[:, self.label_bytes - 1], self.classes)
        return rows[:, self.label_bytes :].reshape(-1, *SHAPE), labels

    def _read_python(self, path: Path) -> Batch:
        batch = load_pickle(path, MOST_PICKLED)
        images = _get_images(path, batch)
        labels = _get_labels(path, batch, self)
        check_same_count(path, images, path, labels)
        return images, labels


def _get_images(path: Path, batch: dict[bytes, Any]) -> Images:
    data = batch.get(b"data")
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != PIXELS:
        found = f"an array of shape {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"{path}: 'data' must be an array of {PIXELS} bytes a row, got {found}")
    return np.ascontiguousarray(data).reshape(-1, *SHAPE)


def _get_labels(path: Path, batch: dict[bytes, Any], format: CifarFormat) -> Labels:
    labels = batch.get(format.labels)
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(
            f"{path}: {format.labels.decode()!r} must be a list of whole numbers, got {type(labels).__name__}"
        )
    # As Python numbers, so that one beyond 64 bits is out of range and not an overflow.
    outside = next((label for label in labels if not 0 <= label < format.classes), None)
    if outside is not None:
        said = outside if outside.bit_length() < 128 else f"a number of {outside.bit_length()} bits"
        raise DataError(f"{path}: labels must be in [0, {format.classes - 1}], got {said}")
    return np.array(labels, np.int64)
