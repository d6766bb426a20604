"""Datasets by name: where they lie, what they hold, and how their pixels are to be normalised."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from sfao.benchmarks.cache import load_cached
from sfao.benchmarks.errors import DataError, MissingData
from sfao.benchmarks.formats import cifar, embedded, idx, tiny_imagenet
from sfao.benchmarks.formats.layout import Arrays, Layout
from sfao.benchmarks.names import check_name
from sfao.benchmarks.root import cache_folders, resolve_root


@dataclass(frozen=True)
class Dataset:
    """Images as bytes (N, C, H, W), mapped from the cache where there is one, and their labels.

    `mean` and `std` a channel are for pixels divided by 255.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    #: False when there are fewer images than the publisher's.
    complete: bool
    #: Part of an installed package: real images, but few, and never to be passed off as the full set.
    embedded: bool


@dataclass(frozen=True)
class Description:
    """What is known of a dataset before it is read."""

    classes: int
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    #: How it may lie under a data root, the first choice first; empty for what is embedded.
    layouts: Callable[[Path], list[Layout]]


# MNIST is not normalised, as in the paper's released code.
UNCHANGED = {"mean": (0.0,), "std": (1.0,)}

DESCRIPTIONS = {
    "mnist-5k": Description(10, 4000, 1000, **UNCHANGED, layouts=lambda root: []),
    "mnist": Description(10, 60000, 10000, **UNCHANGED, layouts=idx.layouts),
    # Mean and standard deviation of all training pixels.
    "cifar10": Description(
        10,
        50000,
        10000,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        layouts=partial(cifar.layouts, cifar.CIFAR10),
    ),
    "cifar100": Description(
        100,
        50000,
        10000,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        layouts=partial(cifar.layouts, cifar.CIFAR100),
    ),
    # Those of ImageNet.
    "tiny-imagenet": Description(
        200,
        100000,
        10000,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        layouts=tiny_imagenet.layouts,
    ),
}


def load_dataset(name: str, data_root: str | os.PathLike[str] | None = None) -> Dataset:
    """A dataset by name, from `data_root`, else $SFAO_DATA, else the user's cache folder.

    The first call decodes the publisher's files and caches the arrays; later ones map them.
    """
    check_name(name)
    if name == "mnist-5k":
        return _dataset(name, embedded.read(embedded.embedded_file()))
    root = resolve_root(data_root)
    layout = find_layout(name, root)
    try:
        return _dataset(name, load_cached(name, layout, cache_folders(root)))
    except OSError as error:
        raise DataError(f"{error.filename or layout.folder}: could not be read ({error.strerror or error})") from error


def find_layout(name: str, root: Path) -> Layout:
    """The first layout of which every file is there."""
    layouts = DESCRIPTIONS[name].layouts(root)
    for layout in layouts:
        if not layout.missing:
            return layout
    raise MissingData(f"{_not_found(name, layouts)}\nGet it with: sfao data get {name} --data-root {root}")


def _not_found(name: str, layouts: list[Layout]) -> str:
    begun = next((layout for layout in layouts if len(layout.missing) < len(layout.files)), None)
    if begun is not None:
        return f"`{name}` is not whole: {begun.folder} lacks {', '.join(path.name for path in begun.missing)}"
    return f"`{name}` was not found; looked in {', '.join(str(layout.folder) for layout in layouts)}"


def _dataset(name: str, arrays: Arrays) -> Dataset:
    description = DESCRIPTIONS[name]
    return Dataset(
        name=name,
        **{key: torch.from_numpy(array) for key, array in arrays.items()},
        classes=description.classes,
        mean=description.mean,
        std=description.std,
        complete=len(arrays.train_labels) >= description.train and len(arrays.test_labels) >= description.test,
        embedded=name == "mnist-5k",
    )
