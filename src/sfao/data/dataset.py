"""Data sets by name, as tensors."""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from sfao.data.cache import load_cached
from sfao.data.description import DatasetDescription
from sfao.data.errors import DataError
from sfao.data.formats.file_layout import Arrays
from sfao.data.root import list_cache_folders, resolve_root
from sfao.data.sets import get_description


@dataclass(frozen=True)
class Dataset:
    """Images as bytes (N, C, H, W), mapped from the cache where there is one, and their labels.

    `mean` and `std` of each channel are for pixels divided by 255.
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
    #: Tells data of one's own from others of the same name and size; empty for published data.
    digest: str = ""


def load_dataset(name: str, data_root: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by name from `data_root`, else $SFAO_DATA, else the user's cache folder.

    The first call decodes the publisher's files and caches the arrays; later calls map them.
    """
    description = get_description(name)
    root = resolve_root(data_root)
    layout = description.find_layout(root)
    try:
        # Embedded files are small and read quickly: they leave nothing in the data root.
        arrays = layout.read() if description.embedded else load_cached(name, layout, list_cache_folders(root))
    except OSError as error:
        raise DataError(f"{error.filename or layout.folder}: could not be read ({error.strerror or error})") from error
    return _make_dataset(description, arrays)


def _make_dataset(description: DatasetDescription, arrays: Arrays) -> Dataset:
    return Dataset(
        name=description.name,
        **{key: torch.from_numpy(array) for key, array in arrays.items()},
        classes=description.classes,
        mean=description.mean,
        std=description.std,
        complete=description.is_complete(len(arrays.train_labels), len(arrays.test_labels)),
        embedded=description.embedded,
        digest="",
    )
