"""MNIST: 70,000 handwritten digits in four idx files, packed or not; and mnist-5k, 5,000 of them in this package."""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sfao.lab.data.arrays import Arrays, Images, Labels, check_labels, check_same_count
from sfao.lab.data.description import DatasetDescription, Layout, parse_known
from sfao.lab.data.errors import DataError

CLASSES = 10
TERMS = "LeCun, Cortes, Burges; CC BY-SA 3.0 as usually given"

#: Training images and labels, test images and labels.
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
PACKED = parse_known("""
train-images-idx3-ubyte.gz 9912422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
train-labels-idx1-ubyte.gz 28881 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
t10k-images-idx3-ubyte.gz 1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
t10k-labels-idx1-ubyte.gz 4542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
""")
#: Computed from the packed ones.
UNPACKED = parse_known("""
train-images-idx3-ubyte 47040016 ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
train-labels-idx1-ubyte 60008 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
t10k-images-idx3-ubyte 7840016 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
t10k-labels-idx1-ubyte 10008 ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
""")
#: The most images of one file: the training images.
MAX_COUNT = 60000

# -- The idx format: a big-endian header of a magic number and the sizes, then one byte per pixel or label -------------


def read_images(path: Path) -> Images:
    """Read images of 28 x 28 pixels as (N, 1, 28, 28)."""
    return _read_values(path, 3).reshape(-1, 1, 28, 28)


def read_labels(path: Path, classes: int) -> Labels:
    """Read labels of so many classes."""
    return check_labels(path, _read_values(path, 1), classes)


def _read_values(path: Path, dimensions: int) -> Images:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            expected = math.prod(_read_sizes(path, file, dimensions))
            content = file.read(expected + 1)  # the checksum of a gzip file is compared at its end
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: must be a whole gzip file, got a truncated or damaged one ({error})") from error
    if len(content) != expected:
        found = "more" if len(content) > expected else len(content)
        raise DataError(f"{path}: must hold the {expected} bytes its header promises, got {found}")
    return np.frombuffer(content, np.uint8)


def _read_sizes(path: Path, file: Any, dimensions: int) -> tuple[int, ...]:
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


# -- The data sets -----------------------------------------------------------------------------------------------------


def list_layouts(root: Path) -> list[Layout]:
    """List torchvision's folder, a plain one, and the root itself."""
    return [_make_layout(folder) for folder in (root / "MNIST" / "raw", root / "mnist", root)]


def _make_layout(folder: Path) -> Layout:
    plain = [folder / name for name in FILES]
    files = tuple(path if path.exists() else path.with_name(f"{path.name}.gz") for path in plain)
    return Layout(folder, files, lambda: read(*files))


def read(train_images: Path, train_labels: Path, test_images: Path, test_labels: Path) -> Arrays:
    """Read the four files."""
    train = read_images(train_images), read_labels(train_labels, CLASSES)
    test = read_images(test_images), read_labels(test_labels, CLASSES)
    check_same_count(train_images, train[0], train_labels, train[1])
    check_same_count(test_images, test[0], test_labels, test[1])
    return Arrays(*train, *test)


MNIST = DatasetDescription(
    name="mnist",
    title="MNIST handwritten digits",
    terms=TERMS,
    classes=CLASSES,
    train=60000,
    test=10000,
    # Not normalized, as in the paper's released code.
    mean=(0.0,),
    std=(1.0,),
    list_layouts=list_layouts,
    known_files=(*PACKED, *UNPACKED),
    downloads=PACKED,
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    folder="MNIST/raw",
)

#: The first 500 digits of each class of the training set, class by class; 400 for training and 100 for testing.
DIGITS = Path(__file__).with_name("mnist-5k-images-idx3-ubyte.gz")


def list_embedded(root: Path) -> list[Layout]:
    """List the file in this package, whatever the data root."""
    return [Layout(DIGITS.parent, (DIGITS,), read_embedded)]


def read_embedded() -> Arrays:
    """Read the digits and split them; nothing is shuffled."""
    images = read_images(DIGITS)
    if len(images) != 5000:
        raise DataError(f"{DIGITS}: must hold 5000 digits, got {len(images)}")
    by_class = images.reshape(CLASSES, 500, 1, 28, 28)
    train, test = by_class[:, :400], by_class[:, 400:]
    labels = np.arange(CLASSES)
    return Arrays(
        train.reshape(-1, 1, 28, 28),
        labels.repeat(400),
        np.ascontiguousarray(test).reshape(-1, 1, 28, 28),
        labels.repeat(100),
    )


MNIST_5K = DatasetDescription(
    name="mnist-5k",
    title="5,000 MNIST digits in this package",
    terms=TERMS,
    classes=CLASSES,
    train=4000,
    test=1000,
    mean=MNIST.mean,
    std=MNIST.std,
    list_layouts=list_embedded,
    known_files=parse_known(f"{DIGITS.name} 806409 c6b100a5a2c03680cfe2ea9a6cb50df61c85444712901c9827140677184ff468"),
)
