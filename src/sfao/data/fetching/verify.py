"""Whether the files of a dataset are the published ones."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from sfao.data.descriptions import DESCRIPTIONS
from sfao.data.errors import DataError
from sfao.data.fetching.catalogue import KNOWN_FILES, KnownFile
from sfao.data.fetching.digests import file_digest
from sfao.data.formats import cifar, embedded, idx, tiny_imagenet
from sfao.data.formats.layout import Layout
from sfao.data.names import check_name
from sfao.data.root import resolve_root

TRAIN_PER_CLASS = 500
VALIDATION = 10000


class Status(StrEnum):
    OK = "ok"
    MISSING = "missing"
    #: Sound, with fewer images than published: a subset for development.
    PARTIAL = "partial"
    DIFFERS = "differs"


@dataclass(frozen=True)
class FileResult:
    path: Path
    status: Status
    detail: str = ""


def verify(name: str, data_root: str | os.PathLike[str] | None = None) -> list[FileResult]:
    """Each file of a dataset against what was published.

    When several layouts are there, the one that load_dataset would read.
    """
    check_name(name)
    if name == "mnist-5k":
        return [_verify_embedded()]
    layout = _most_complete(DESCRIPTIONS[name].layouts(resolve_root(data_root)))
    if name == "tiny-imagenet":
        return _verify_tiny_imagenet(layout)
    return verify_files(layout.files, KNOWN_FILES[name], READERS[name])


def verify_files(
    paths: tuple[Path, ...], known: Mapping[str, KnownFile], reader: Callable[[Path], Any]
) -> list[FileResult]:
    return [_verify_file(path, known[path.name], reader) for path in paths]


def _verify_file(path: Path, known: KnownFile, reader: Callable[[Path], Any]) -> FileResult:
    if not path.is_file():
        return FileResult(path, Status.MISSING, f"{known.size} bytes")
    found = file_digest(path, known.digest.partition(":")[0])
    if found == known.digest:
        return FileResult(path, Status.OK, known.digest)
    try:
        reader(path)
    except DataError as error:
        return FileResult(path, Status.DIFFERS, str(error))
    if path.stat().st_size < known.size:
        return FileResult(path, Status.PARTIAL, f"readable, {path.stat().st_size} of {known.size} bytes")
    return FileResult(path, Status.DIFFERS, f"readable, but must be {known.digest}, got {found}")


def _read_cifar(kind: cifar.Cifar, path: Path) -> cifar.Batch:
    return cifar.read_binary(path, kind) if path.suffix == ".bin" else cifar.read_python(path, kind)


READERS: dict[str, Callable[[Path], Any]] = {
    "mnist": lambda path: idx.reader(path.name)(path),
    "cifar10": partial(_read_cifar, cifar.CIFAR10),
    "cifar100": partial(_read_cifar, cifar.CIFAR100),
}


def _most_complete(layouts: list[Layout]) -> Layout:
    return min(layouts, key=lambda layout: len(layout.missing) / len(layout.files))


def _verify_embedded() -> FileResult:
    path = embedded.embedded_file()
    try:
        embedded.read(path)
    except DataError as error:
        return FileResult(path, Status.DIFFERS, str(error))
    return FileResult(path, Status.OK, "500 digits of each class")


def _verify_tiny_imagenet(layout: Layout) -> list[FileResult]:
    """By counting: the digest is the archive's, and the 110,000 files have none of their own."""
    if layout.missing:
        return [FileResult(path, Status.OK if path.exists() else Status.MISSING) for path in layout.files]
    folder = layout.folder
    try:
        numbers = tiny_imagenet.class_numbers(folder / "wnids.txt")
        train = tiny_imagenet.list_train(folder, numbers)
        validation = tiny_imagenet.list_validation(folder, numbers)
    except DataError as error:
        return [FileResult(folder, Status.DIFFERS, str(error))]
    return [
        FileResult(folder / "wnids.txt", Status.OK, f"{len(numbers)} classes"),
        _counted(folder / "train", [path for path, _ in train], TRAIN_PER_CLASS * len(numbers)),
        _counted(folder / "val", [path for path, _ in validation], VALIDATION),
    ]


def _counted(folder: Path, files: list[Path], published: int) -> FileResult:
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
