"""Tiny ImageNet: 64 x 64 JPEG files, one folder per class for training, a table of names for validation.

The published test images have no labels, so the validation images serve as the test set, as is usual.
A class is numbered by its line in wnids.txt.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from sfao.data.description import DatasetDescription
from sfao.data.errors import DataError
from sfao.data.file_check import FileResult, Status
from sfao.data.formats.file_layout import Arrays, Counts, FileLayout, Images
from sfao.data.publication import Download, KnownFile, Publication

CLASSES = 200
TRAIN_PER_CLASS = 500
VALIDATION = 10000
FOLDER = "tiny-imagenet-200"
SIDE = 64

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
    return [FileLayout(folder, files, lambda: read(folder), watched=classes, count=lambda: count(folder, classes))]


def count(folder: Path, classes: tuple[Path, ...]) -> Counts:
    """Count the images by the names of the files."""
    train = sum(name.endswith(".JPEG") for images in classes for name in os.listdir(images))
    return train, len((folder / "val" / "val_annotations.txt").read_text().splitlines())


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


def read_class_numbers(path: Path) -> dict[str, int]:
    """Read the number of each class."""
    wnids = path.read_text().split()
    if len(wnids) != CLASSES or len(set(wnids)) != CLASSES:
        raise DataError(f"{path}: must name {CLASSES} different classes, got {len(set(wnids))} in {len(wnids)} lines")
    return {wnid: number for number, wnid in enumerate(wnids)}


def list_train(folder: Path, numbers: dict[str, int]) -> Listing:
    """List the training images, class by class."""
    listing: Listing = []
    for wnid, number in numbers.items():
        files = sorted((folder / "train" / wnid / "images").glob("*.JPEG"))
        if not files:
            raise DataError(f"{folder / 'train' / wnid / 'images'}: must hold JPEG files of class {wnid}, got none")
        listing += [(file, number) for file in files]
    return listing


def list_validation(folder: Path, numbers: dict[str, int]) -> Listing:
    """List the validation images in the order of the table."""
    table = folder / "val" / "val_annotations.txt"
    listing: Listing = []
    for line_number, line in enumerate(table.read_text().splitlines(), start=1):
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
        with Image.open(path, formats=["JPEG"]) as image:
            if image.size != (SIDE, SIDE):
                raise DataError(f"{path}: must be {SIDE} x {SIDE} pixels, got {image.width} x {image.height}")
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except FileNotFoundError:
        raise DataError(f"{path}: must be there, as val_annotations.txt names it, got no such file") from None
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise DataError(f"{path}: must be a whole JPEG file, got a truncated or damaged one ({error})") from error


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
    try:
        content = path.read_bytes()
    except OSError:
        return False
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
