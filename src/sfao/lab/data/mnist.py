"""MNIST: 70,000 handwritten digits in four idx files; and mnist-5k, the 5,000 of them in this package."""

from pathlib import Path

import numpy as np

from sfao.lab.data.arrays import Arrays, check_same_count
from sfao.lab.data.description import DatasetDescription, KnownFile, Layout
from sfao.lab.data.errors import DataError
from sfao.lab.data.idx import count_labels, read_images, read_labels

CLASSES = 10
TERMS = "LeCun, Cortes, Burges; CC BY-SA 3.0 as usually given"

#: Training images and labels, test images and labels.
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
PACKED = tuple(
    KnownFile(f"{name}.gz", size, f"sha256:{digest}")
    for name, size, digest in (
        (FILES[0], 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (FILES[1], 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (FILES[2], 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (FILES[3], 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
)
# Computed from the packed ones.
UNPACKED = tuple(
    KnownFile(name, size, f"sha256:{digest}")
    for name, size, digest in (
        (FILES[0], 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        (FILES[1], 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        (FILES[2], 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        (FILES[3], 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    )
)


def list_layouts(root: Path) -> list[Layout]:
    """List torchvision's folder, a plain one, and the root itself."""
    return [_make_layout(folder) for folder in (root / "MNIST" / "raw", root / "mnist", root)]


def _make_layout(folder: Path) -> Layout:
    plain = [folder / name for name in FILES]
    files = tuple(path if path.exists() else path.with_name(f"{path.name}.gz") for path in plain)
    return Layout(folder, files, lambda: read(*files), lambda: (count_labels(files[1]), count_labels(files[3])))


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
    read_file=lambda path: read_images(path) if "images" in path.name else read_labels(path, CLASSES),
    downloads=PACKED,
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    folder="MNIST/raw",
)

#: The first 500 digits of each class of the training set, class by class; 400 for training and 100 for testing.
DIGITS = Path(__file__).with_name("mnist-5k-images-idx3-ubyte.gz")


def list_embedded(root: Path) -> list[Layout]:
    """List the file in this package, whatever the data root."""
    return [Layout(DIGITS.parent, (DIGITS,), read_embedded, lambda: (4000, 1000))]


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
    known_files=(
        KnownFile(DIGITS.name, 806409, "sha256:c6b100a5a2c03680cfe2ea9a6cb50df61c85444712901c9827140677184ff468"),
    ),
)
