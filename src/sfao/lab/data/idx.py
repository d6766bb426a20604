"""The idx format of MNIST: a big-endian header of a magic number and the sizes, then one byte per pixel or label.

A file may be compressed with gzip.
"""

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np

from sfao.lab.data.arrays import Images, Labels, check_labels
from sfao.lab.data.errors import DataError

#: The training images of MNIST, and of the sets that took its form.
MAX_COUNT = 60000


def read_images(path: Path) -> Images:
    """Read images of 28 x 28 pixels as (N, 1, 28, 28)."""
    return _read_values(path, 3).reshape(-1, 1, 28, 28)


def read_labels(path: Path, classes: int) -> Labels:
    """Read labels of so many classes."""
    return check_labels(path, _read_values(path, 1), classes)


def count_labels(path: Path) -> int:
    """Return the number of labels that the header gives."""
    with _open(path) as file:
        return _read_sizes(path, file, 1)[0]


def _read_values(path: Path, dimensions: int) -> Images:
    with _open(path) as file:
        expected = math.prod(_read_sizes(path, file, dimensions))
        content = file.read(expected + 1)  # the checksum of a gzip file is compared at its end
    if len(content) != expected:
        found = "more" if len(content) > expected else len(content)
        raise DataError(f"{path}: must hold the {expected} bytes its header promises, got {found}")
    return np.frombuffer(content, np.uint8)


def _read_sizes(path: Path, file: IO[bytes], dimensions: int) -> tuple[int, ...]:
    length = 4 * (1 + dimensions)
    header = file.read(length)
    if len(header) < length:
        raise DataError(f"{path}: must start with a header of {length} bytes, got {len(header)} bytes in all")
    found, *sizes = struct.unpack(f">{1 + dimensions}I", header)
    magic = 0x800 + dimensions  # 0x08 stands for bytes
    if found != magic:
        raise DataError(f"{path}: must start with the magic number {magic:#010x}, got {found:#010x}")
    if dimensions == 3 and sizes[1:] != [28, 28]:
        raise DataError(f"{path}: images must be 28 x 28, got {sizes[1]} x {sizes[2]}")
    if sizes[0] > MAX_COUNT:
        raise DataError(f"{path}: must hold at most {MAX_COUNT} images or labels, got a header of {sizes[0]}")
    return tuple(sizes)


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield cast(IO[bytes], file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: must be a whole gzip file, got a truncated or damaged one ({error})") from error
