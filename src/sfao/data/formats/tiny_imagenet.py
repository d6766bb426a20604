"""Tiny ImageNet: 64 x 64 JPEG files, a folder a class for training, a table of names for validation.

The published test images have no labels, so the validation images serve as the test set, as everywhere.
A class is numbered by its line in wnids.txt.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from sfao.data.errors import DataError
from sfao.data.formats.layout import Arrays, Counts, Images, Layout

CLASSES = 200
FOLDER = "tiny-imagenet-200"
SIDE = 64

#: Files and their labels.
Listing = list[tuple[Path, int]]


def layouts(root: Path) -> list[Layout]:
    """Folders stand for the files in them: their times change when a file comes or goes, not when one is rewritten."""
    folder = root / FOLDER
    files = (folder / "wnids.txt", folder / "val" / "val_annotations.txt", folder / "val" / "images", folder / "train")
    classes = tuple(sorted(folder.glob("train/*/images")))
    return [Layout(folder, files, lambda: read(folder), watched=classes, count=lambda: count(folder, classes))]


def count(folder: Path, classes: tuple[Path, ...]) -> Counts:
    """By the names of the files."""
    train = sum(name.endswith(".JPEG") for images in classes for name in os.listdir(images))
    return train, len((folder / "val" / "val_annotations.txt").read_text().splitlines())


def read(folder: Path) -> Arrays:
    numbers = class_numbers(folder / "wnids.txt")
    train, test = list_train(folder, numbers), list_validation(folder, numbers)
    return Arrays(
        _decode_all([path for path, _ in train]),
        np.array([label for _, label in train], np.int64),
        _decode_all([path for path, _ in test]),
        np.array([label for _, label in test], np.int64),
    )


def class_numbers(path: Path) -> dict[str, int]:
    wnids = path.read_text().split()
    if len(wnids) != CLASSES or len(set(wnids)) != CLASSES:
        raise DataError(f"{path}: must name {CLASSES} different classes, got {len(set(wnids))} in {len(wnids)} lines")
    return {wnid: number for number, wnid in enumerate(wnids)}


def list_train(folder: Path, numbers: dict[str, int]) -> Listing:
    listing: Listing = []
    for wnid, number in numbers.items():
        files = sorted((folder / "train" / wnid / "images").glob("*.JPEG"))
        if not files:
            raise DataError(f"{folder / 'train' / wnid / 'images'}: must hold JPEG files of class {wnid}, got none")
        listing += [(file, number) for file in files]
    return listing


def list_validation(folder: Path, numbers: dict[str, int]) -> Listing:
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

    # Pillow lets go of the interpreter while it decodes, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(decode_into, range(len(paths))):
            pass
    return images


def decode(path: Path) -> Images:
    """One image as (3, 64, 64) bytes; the few grey ones become colour."""
    try:
        with Image.open(path, formats=["JPEG"]) as image:
            if image.size != (SIDE, SIDE):
                raise DataError(f"{path}: must be {SIDE} x {SIDE} pixels, got {image.width} x {image.height}")
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except FileNotFoundError:
        raise DataError(f"{path}: must be there, as val_annotations.txt names it, got no such file") from None
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise DataError(f"{path}: must be a whole JPEG file, got a truncated or damaged one ({error})") from error
