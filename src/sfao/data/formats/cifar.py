"""CIFAR-10 and CIFAR-100, in the python version (pickled dictionaries) and the binary one (plain records)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfao.data.errors import DataError
from sfao.data.formats.layout import Arrays, Images, Labels, Layout, check_labels, check_same_count
from sfao.data.formats.restricted_pickle import load_pickle

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32

Batch = tuple[Images, Labels]


@dataclass(frozen=True)
class Cifar:
    """What sets the two datasets apart."""

    classes: int
    python_folder: str
    binary_folder: str
    train: tuple[str, ...]
    test: str
    #: The key of the labels in the python version.
    labels: bytes
    #: Bytes before the pixels of a binary record; the label is the last of them.
    label_bytes: int


CIFAR10 = Cifar(
    classes=10,
    python_folder="cifar-10-batches-py",
    binary_folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    labels=b"labels",
    label_bytes=1,
)

# The coarse label of CIFAR-100 comes first and is not used.
CIFAR100 = Cifar(
    classes=100,
    python_folder="cifar-100-python",
    binary_folder="cifar-100-binary",
    train=("train",),
    test="test",
    labels=b"fine_labels",
    label_bytes=2,
)


def layouts(kind: Cifar, root: Path) -> list[Layout]:
    """The binary version first: it is read faster, and there is no pickle in it."""
    return [
        _layout(root / kind.binary_folder, kind, ".bin", read_binary, count_binary),
        _layout(root / kind.python_folder, kind, "", read_python),
    ]


def _layout(
    folder: Path,
    kind: Cifar,
    suffix: str,
    read_batch: Callable[[Path, Cifar], Batch],
    count_batch: Callable[[Path, Cifar], int] | None = None,
) -> Layout:
    train = [folder / (stem + suffix) for stem in kind.train]
    test = folder / (kind.test + suffix)

    def read() -> Arrays:
        images, labels = zip(*(read_batch(path, kind) for path in train), strict=True)
        return Arrays(np.concatenate(images), np.concatenate(labels), *read_batch(test, kind))

    if count_batch is None:
        return Layout(folder, (*train, test), read)
    return Layout(
        folder,
        (*train, test),
        read,
        count=lambda: (sum(count_batch(path, kind) for path in train), count_batch(test, kind)),
    )


def count_binary(path: Path, kind: Cifar) -> int:
    """The records that a file of its size holds."""
    record, size = kind.label_bytes + PIXELS, path.stat().st_size
    if not size or size % record:
        raise DataError(f"{path}: must hold whole records of {record} bytes, got {size} bytes")
    return size // record


def read_binary(path: Path, kind: Cifar) -> Batch:
    rows = np.fromfile(path, np.uint8).reshape(count_binary(path, kind), -1)
    labels = check_labels(path, rows[:, kind.label_bytes - 1], kind.classes)
    return rows[:, kind.label_bytes :].reshape(-1, *SHAPE), labels


def read_python(path: Path, kind: Cifar) -> Batch:
    batch = load_pickle(path)
    images = _python_images(path, batch)
    labels = _python_labels(path, batch, kind)
    check_same_count(path, images, path, labels)
    return images, labels


def _python_images(path: Path, batch: dict[bytes, Any]) -> Images:
    data = batch.get(b"data")
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != PIXELS:
        found = f"an array of shape {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"{path}: 'data' must be an array of {PIXELS} bytes a row, got {found}")
    return np.ascontiguousarray(data).reshape(-1, *SHAPE)


def _python_labels(path: Path, batch: dict[bytes, Any], kind: Cifar) -> Labels:
    labels = batch.get(kind.labels)
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(
            f"{path}: {kind.labels.decode()!r} must be a list of whole numbers, got {type(labels).__name__}"
        )
    # As Python numbers, so that one beyond 64 bits is out of range and not an overflow.
    outside = next((label for label in labels if not 0 <= label < kind.classes), None)
    if outside is not None:
        raise DataError(f"{path}: labels must be in [0, {kind.classes - 1}], got {outside}")
    return np.array(labels, np.int64)
