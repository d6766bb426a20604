"""Tiny ImageNet: 64 x 64 JPEG files, one folder per class for training, a table of names for validation.

The published test images have no labels, so the validation images serve as the test set, as is usual.
A class is numbered by its line in wnids.txt.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.errors import DataError
from sfao.lab.data.file_check import FileResult, Status
from sfao.lab.data.formats.bounded import read_bounded
from sfao.lab.data.formats.file_layout import Arrays, Counts, FileLayout, Images, is_there
from sfao.lab.data.formats.pictures import open_picture
from sfao.lab.data.publication import Download, KnownFile, Publication

CLASSES = 200
TRAIN_PER_CLASS = 500
VALIDATION = 10000
FOLDER = "tiny-imagenet-200"
SIDE = 64
#: Of a table: that of the validation images has some 40 for each.
MOST_LETTERS = 1 << 22

ARCHIVE = KnownFile(
    "tiny-imagenet-200.zip",
    248100043,
    "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
)
MIRRORS = ("https://cs231n.stanford.edu/",)

#: Files and their labels.
Listing = list[tuple[Path, int]]


def list_layouts(root: Path) -> list[FileLayout]:
    """List the publisher's layout.

    Folders stand for the files in them: their times change when a file is added or removed, not when it is rewritten.
    """
    folder = root / FOLDER
    files = (folder / "wnids.txt", folder / "val" / "val_annotations.txt", folder / "val" / "images", folder / "train")
    classes = tuple(sorted(folder.glob("train/*/images")))
    return [
        FileLayout(
            folder,
            files,
            lambda: read(folder),
            watched=classes,
            count=lambda: count(folder, classes),
            list_contents=lambda: list_contents(folder),
        )
    ]


def list_contents(folder: Path) -> list[Path]:
    """List the tables and all files beside the images."""
    tables = [folder / "wnids.txt", folder / "val" / "val_annotations.txt"]
    classes = [path / "images" for path in list_folder(folder / "train")]
    return [*tables, *(path for images in (folder / "val" / "images", *classes) for path in list_folder(images))]


def list_folder(folder: Path) -> list[Path]:
    """List what is in a folder; one that cannot be read is an OSError, where a glob would be empty."""
    return [folder / name for name in sorted(os.listdir(folder))]


def count(folder: Path, classes: tuple[Path, ...]) -> Counts:
    """Count the images by the names of the files."""
    train = sum(name.endswith(".JPEG") for images in classes for name in os.listdir(images))
    return train, len(read_table(folder / "val" / "val_annotations.txt").splitlines())


def read(folder: Path) -> Arrays:
    """Decode all images."""
    numbers = read_class_numbers(folder / "wnids.txt")
    train, test = list_train(folder, numbers), list_validation(folder, numbers)
    return Arrays(
        _decode_all([path for path, _ in train]),
        np.array([label for _, label in train], np.int64),
        _decode_all([path for path, _ in test]),
        np.array([label for _, label in test], np.int64),
    )


def read_table(path: Path) -> str:
    """Read a table of names."""
    try:
        return read_bounded(path, MOST_LETTERS).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: must be text, got other bytes ({error})") from error


def read_class_numbers(path: Path) -> dict[str, int]:
    """Read the number of each class."""
    wnids = read_table(path).split()
    if len(wnids) != CLASSES or len(set(wnids)) != CLASSES:
        raise DataError(f"{path}: must name {CLASSES} different classes, got {len(set(wnids))} in {len(wnids)} lines")
    return {wnid: number for number, wnid in enumerate(wnids)}


def list_train(folder: Path, numbers: dict[str, int]) -> Listing:
    """List the training images, class by class."""
    listing: Listing = []
    for wnid, number in numbers.items():
        files = _list_jpegs(folder / "train" / wnid / "images")
        if not files:
            raise DataError(f"{folder / 'train' / wnid / 'images'}: must hold JPEG files of class {wnid}, got none")
        listing += [(file, number) for file in files]
    return listing


def _list_jpegs(folder: Path) -> list[Path]:
    return [path for path in list_folder(folder) if path.suffix == ".JPEG"] if is_there(folder) else []


def list_validation(folder: Path, numbers: dict[str, int]) -> Listing:
    """List the validation images in the order of the table."""
    table = folder / "val" / "val_annotations.txt"
    listing: Listing = []
    for line_number, line in enumerate(read_table(table).splitlines(), start=1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        # A name is a name: a path in it would lead out of the folder.
        if wnid not in numbers or Path(name).name != name:
            raise DataError(
                f"{table}: line {line_number} must be a file name and a class of wnids.txt, got {line[:60]!r}"
            )
        listing.append((folder / "val" / "images" / name, numbers[wnid]))
    if not listing:
        raise DataError(f"{table}: must name at least one image, got none")
    return listing


def _decode_all(paths: list[Path]) -> Images:
    images = np.empty((len(paths), 3, SIDE, SIDE), np.uint8)

    def decode_into(index: int) -> None:
        images[index] = decode(paths[index])

    # Pillow releases the interpreter lock while it decodes, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(decode_into, range(len(paths))):
            pass
    return images


def decode(path: Path) -> Images:
    """Return one image as (3, 64, 64) bytes; the few grey ones become colour."""
    try:
        with open_picture(path, "JPEG", SIDE, range(SIDE, SIDE + 1)) as image:
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except FileNotFoundError:
        raise DataError(f"{path}: must be there, as val_annotations.txt names it, got no such file") from None


def verify(layout: FileLayout) -> list[FileResult]:
    """Count the images: the only digest is the archive's, the 110,000 files have none of their own."""
    if layout.missing:
        return [FileResult(path, Status.OK if path.exists() else Status.MISSING) for path in layout.files]
    folder = layout.folder
    try:
        numbers = read_class_numbers(folder / "wnids.txt")
        train = list_train(folder, numbers)
        validation = list_validation(folder, numbers)
    except DataError as error:
        return [FileResult(folder, Status.DIFFERS, str(error))]
    return [
        FileResult(folder / "wnids.txt", Status.OK, f"{len(numbers)} classes"),
        _check_count(folder / "train", [path for path, _ in train], TRAIN_PER_CLASS * len(numbers)),
        _check_count(folder / "val", [path for path, _ in validation], VALIDATION),
    ]


def _check_count(folder: Path, files: list[Path], published: int) -> FileResult:
    damaged = next((path for path in files if not _looks_like_jpeg(path)), None)
    if damaged is not None:
        return FileResult(folder, Status.DIFFERS, f"{damaged}: must start and end as a JPEG file does")
    counts = f"{len(files)} of {published} images"
    if len(files) > published:
        return FileResult(folder, Status.DIFFERS, counts)
    return FileResult(folder, Status.OK if len(files) == published else Status.PARTIAL, counts)


def _looks_like_jpeg(path: Path) -> bool:
    if not is_there(path):
        return False
    content = path.read_bytes()
    return content.startswith(b"\xff\xd8") and content.rstrip(b"\0").endswith(b"\xff\xd9")


TINY_IMAGENET = DatasetDescription(
    name="tiny-imagenet",
    title="Tiny ImageNet, 200 classes",
    terms="Stanford CS231n, from ImageNet; ImageNet's research terms",
    classes=CLASSES,
    train=CLASSES * TRAIN_PER_CLASS,
    test=VALIDATION,
    # Those of ImageNet.
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    list_layouts=list_layouts,
    verify=verify,
    publication=Publication(
        folder=FOLDER,
        downloads=(Download(ARCHIVE, MIRRORS),),
        archive=True,
        # 120,000 small files: what they take on disk, not what they hold.
        unpacked_size=500 * 10**6,
    ),
)
