"""The idx format of MNIST: a big-endian header of a magic number and the sizes, then one byte per pixel or label.

A file may be packed with gzip.
"""

import math
import struct
from pathlib import Path
from typing import IO

import numpy as np

from sfao.lab.data.errors import DataError
from sfao.lab.data.formats.bounded import open_packed
from sfao.lab.data.formats.file_layout import Images, Labels, check_labels

PIXELS = (28, 28)
#: As many as MNIST has for training, and what took its form: no file is believed to hold more.
MOST = 60000
PIECE = 1 << 20

# 0x08 says bytes, the last digit how many dimensions.
IMAGES_MAGIC = 0x00000803
LABELS_MAGIC = 0x00000801


def read_images(path: Path, most: int = MOST) -> Images:
    """Read at most so many images of 28 x 28 pixels."""
    values, _ = _read_values(path, IMAGES_MAGIC, most)
    return values.reshape(-1, 1, *PIXELS)


def read_labels(path: Path, classes: int, most: int = MOST) -> Labels:
    """Read at most so many labels of so many classes."""
    values, _ = _read_values(path, LABELS_MAGIC, most)
    return check_labels(path, values, classes)


def count_labels(path: Path) -> int:
    """Return the number of labels that the header gives."""
    with open_packed(path) as file:
        return _read_sizes(path, file, LABELS_MAGIC, MOST)[0]


def _read_values(path: Path, magic: int, most: int) -> tuple[Images, list[int]]:
    with open_packed(path) as file:
        sizes = _read_sizes(path, file, magic, most)
        expected = math.prod(sizes)
        # One more than there must be: the end of a packed file is where its own checksum is compared.
        content = _read_whole(file, expected + 1)
    if len(content) != expected:
        found = "more" if len(content) > expected else len(content)
        raise DataError(f"{path}: must hold the {expected} bytes its header promises, got {found}")
    return np.frombuffer(content, np.uint8), sizes


def _read_whole(file: IO[bytes], most: int) -> bytearray:
    """Read so many bytes at most; piece by piece, as a header may promise more than there is."""
    content = bytearray()
    while len(content) < most and (piece := file.read(min(PIECE, most - len(content)))):
        content += piece
    return content


def _read_sizes(path: Path, file: IO[bytes], magic: int, most: int) -> list[int]:
    """Read the header; nothing is believed of it but what such a file can hold."""
    dimensions = magic & 0xFF
    length = 4 * (1 + dimensions)
    header = file.read(length)
    if len(header) < length:
        raise DataError(f"{path}: must start with a header of {length} bytes, got {len(header)} bytes in all")
    found, *sizes = struct.unpack(f">{1 + dimensions}I", header)
    if found != magic:
        raise DataError(f"{path}: must start with the magic number {magic:#010x}, got {found:#010x}")
    if dimensions > 1 and tuple(sizes[1:]) != PIXELS:
        raise DataError(f"{path}: images must be 28 x 28, got {sizes[1]} x {sizes[2]}")
    if sizes[0] > most:
        raise DataError(f"{path}: must hold at most {most} images or labels, got a header of {sizes[0]}")
    return sizes
