"""Tiny ImageNet: 64 x 64 JPEG files, one folder per class for training, a table of names for validation.

The published test images have no labels, so the validation images serve as the test set, as is usual.
A class is numbered by its line in wnids.txt.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from sfao.lab.data.arrays import Arrays, Images
from sfao.lab.data.description import DatasetDescription, Layout, parse_known
from sfao.lab.data.errors import DataError
from sfao.lab.safe_io import InputError, read_text

CLASSES = 200
FOLDER = "tiny-imagenet-200"
#: Of a table: that of the validation images has some 40 bytes for each.
MAX_TABLE = 1 << 22

#: Files and their labels.
Listing = list[tuple[Path, int]]


def list_layouts(root: Path) -> list[Layout]:
    """List the publisher's layout.

    Folders stand for the files in them: their times change when a file is added or removed, not when it is rewritten.
    """
    folder = root / FOLDER
    files = (folder / "wnids.txt", folder / "val" / "val_annotations.txt", folder / "val" / "images", folder / "train")
    classes = tuple(sorted(folder.glob("train/*/images")))
    return [Layout(folder, files, lambda: read(folder), watched=classes)]


def read(folder: Path) -> Arrays:
    """Decode all images."""
    numbers = read_class_numbers(folder / "wnids.txt")
    return Arrays(*_decode_all(list_train(folder, numbers)), *_decode_all(list_validation(folder, numbers)))


def read_table(path: Path) -> str:
    """Read a table of names."""
    try:
        return read_text(path, MAX_TABLE)
    except InputError as error:
        raise DataError(error.at(path)) from error


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
        images = folder / "train" / wnid / "images"
        files = sorted(images.glob("*.JPEG"))
        if not files:
            raise DataError(f"{images}: must hold JPEG files of class {wnid}, got none")
        listing += [(file, number) for file in files]
    return listing


def list_validation(folder: Path, numbers: dict[str, int]) -> Listing:
    """List the validation images in the order of the table."""
    table = folder / "val" / "val_annotations.txt"
    listing: Listing = []
    for line_number, line in enumerate(read_table(table).splitlines(), start=1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in numbers or Path(name).name != name:  # a path would lead out of the folder
            raise DataError(
                f"{table}: line {line_number} must be a file name and a class of wnids.txt, got {line[:60]!r}"
            )
        listing.append((folder / "val" / "images" / name, numbers[wnid]))
    if not listing:
        raise DataError(f"{table}: must name at least one image, got none")
    return listing


def _decode_all(listing: Listing) -> tuple[Images, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    # Pillow releases the interpreter lock while it decodes, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        images = list(pool.map(decode, (path for path, _ in listing)))
    return np.stack(images), np.array([label for _, label in listing], np.int64)


def decode(path: Path) -> Images:
    """Return one image as (3, 64, 64) bytes; the few gray ones become color."""
    try:
        with Image.open(path, formats=["JPEG"]) as image:
            if image.size != (64, 64):  # before a pixel is decoded
                raise DataError(f"{path}: must be 64 x 64 pixels, got {image.width} x {image.height}")
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except FileNotFoundError:
        raise DataError(f"{path}: must be there, as val_annotations.txt names it, got no such file") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{path}: must be 64 x 64 pixels, got far more ({error})") from error
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the decoder
            raise
        raise DataError(f"{path}: must be a whole JPEG file, got a truncated or damaged one ({error})") from error


TINY_IMAGENET = DatasetDescription(
    name="tiny-imagenet",
    title="Tiny ImageNet, 200 classes",
    terms="Stanford CS231n, from ImageNet; ImageNet's research terms",
    classes=CLASSES,
    train=100000,
    test=10000,
    # Those of ImageNet.
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    list_layouts=list_layouts,
    downloads=parse_known(
        "tiny-imagenet-200.zip 248100043 6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"
    ),
    mirrors=("https://cs231n.stanford.edu/",),
    folder=FOLDER,
)
