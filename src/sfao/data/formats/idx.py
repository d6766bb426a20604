"""The idx format of MNIST: a big-endian header of a magic number and the sizes, then one byte per pixel or label.

A file may be packed with gzip.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from sfao.data.errors import DataError
from sfao.data.formats.file_layout import Images, Labels, check_labels

PIXELS = (28, 28)

# 0x08 says bytes, the last digit how many dimensions.
IMAGES_MAGIC = 0x00000803
LABELS_MAGIC = 0x00000801


def read_images(path: Path) -> Images:
    """Read images of 28 x 28 pixels."""
    values, sizes = _read_values(path, IMAGES_MAGIC)
    if tuple(sizes[1:]) != PIXELS:
        raise DataError(f"{path}: images must be 28 x 28, got {sizes[1]} x {sizes[2]}")
    return values.reshape(-1, 1, *PIXELS)


def read_labels(path: Path, classes: int) -> Labels:
    """Read the labels of so many classes."""
    values, _ = _read_values(path, LABELS_MAGIC)
    return check_labels(path, values, classes)


def count_labels(path: Path) -> int:
    """Return the number of labels that the header gives."""
    header = 8
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            magic, count = struct.unpack(">2I", file.read(header))
    except (EOFError, gzip.BadGzipFile, zlib.error, struct.error) as error:
        raise DataError(f"{path}: must start with a header of {header} bytes, got none ({error})") from error
    if magic != LABELS_MAGIC:
        raise DataError(f"{path}: must start with the magic number {LABELS_MAGIC:#010x}, got {magic:#010x}")
    return int(count)


def _read_values(path: Path, magic: int) -> tuple[Images, list[int]]:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: must be a whole gzip file, got a truncated or damaged one ({error})") from error
    return _parse(path, content, magic)


def _parse(path: Path, content: bytes, magic: int) -> tuple[Images, list[int]]:
    dimensions = magic & 0xFF
    header = 4 * (1 + dimensions)
    if len(content) < header:
        raise DataError(f"{path}: must start with a header of {header} bytes, got {len(content)} bytes in all")
    found, *sizes = struct.unpack(f">{1 + dimensions}I", content[:header])
    if found != magic:
        raise DataError(f"{path}: must start with the magic number {magic:#010x}, got {found:#010x}")
    expected, got = math.prod(sizes), len(content) - header
    if got != expected:
        raise DataError(f"{path}: must hold the {expected} bytes its header promises, got {got}")
    return np.frombuffer(content, np.uint8, offset=header), sizes
