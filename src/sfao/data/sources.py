"""Datasets by name, as tensors, with how their pixels are to be normalised."""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from sfao.data.cache import load_cached
from sfao.data.descriptions import DESCRIPTIONS, Description, find_layout
from sfao.data.errors import DataError
from sfao.data.formats import embedded
from sfao.data.formats.layout import Arrays
from sfao.data.names import check_name
from sfao.data.root import cache_folders, resolve_root

__all__ = ["DESCRIPTIONS", "Dataset", "Description", "find_layout", "load_dataset"]


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
