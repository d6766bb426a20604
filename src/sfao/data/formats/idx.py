"""MNIST's idx files: a big-endian header of a magic number and the sizes, then one byte a pixel or label."""

import gzip
import math
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sfao.data.errors import DataError
from sfao.data.formats.layout import Arrays, Images, Labels, Layout, check_labels, check_same_count

CLASSES = 10
PIXELS = (28, 28)

# 0x08 says bytes, the last digit how many dimensions.
IMAGES_MAGIC = 0x00000803
LABELS_MAGIC = 0x00000801

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)


def layouts(root: Path) -> list[Layout]:
    """Where MNIST may lie: torchvision's folder, a plain one, the root itself."""
    return [_layout(folder) for folder in (root / "MNIST" / "raw", root / "mnist", root)]


def _layout(folder: Path) -> Layout:
    files = tuple(_unpacked_or_packed(folder / name) for name in FILES)
    return Layout(folder, files, lambda: read(*files), count=lambda: (_count(files[1]), _count(files[3])))


def _unpacked_or_packed(path: Path) -> Path:
    return path if path.exists() else path.with_name(path.name + ".gz")


def read(train_images: Path, train_labels: Path, test_images: Path, test_labels: Path) -> Arrays:
    arrays = Arrays(
        read_images(train_images), read_labels(train_labels), read_images(test_images), read_labels(test_labels)
    )
    check_same_count(train_images, arrays.train_images, train_labels, arrays.train_labels)
    check_same_count(test_images, arrays.test_images, test_labels, arrays.test_labels)
    return arrays


def read_images(path: Path) -> Images:
    values, sizes = _read_idx(path, IMAGES_MAGIC)
    if tuple(sizes[1:]) != PIXELS:
        raise DataError(f"{path}: images must be 28 x 28, got {sizes[1]} x {sizes[2]}")
    return values.reshape(-1, 1, *PIXELS)


def read_labels(path: Path) -> Labels:
    values, _ = _read_idx(path, LABELS_MAGIC)
    return check_labels(path, values, CLASSES)


def reader(name: str) -> Callable[[Path], Images | Labels]:
    """What reads a file of this name, packed or not."""
    return read_images if "images" in name else read_labels


def _read_idx(path: Path, magic: int) -> tuple[Images, list[int]]:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: must be a whole gzip file, got a truncated or damaged one ({error})") from error
    return _parse(path, content, magic)


def _count(path: Path) -> int:
    """As the header of the labels has it."""
    header = 8
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            magic, count = struct.unpack(">2I", file.read(header))
    except (EOFError, gzip.BadGzipFile, zlib.error, struct.error) as error:
        raise DataError(f"{path}: must start with a header of {header} bytes, got none ({error})") from error
    if magic != LABELS_MAGIC:
        raise DataError(f"{path}: must start with the magic number {LABELS_MAGIC:#010x}, got {magic:#010x}")
    return int(count)


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
