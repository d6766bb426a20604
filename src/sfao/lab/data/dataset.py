"""Data sets by name, as tensors."""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from sfao.lab.data.cache import load_layout
from sfao.lab.data.root import resolve_root
from sfao.lab.data.sets import get_description


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
    #: False if there are fewer images than published.
    complete: bool = True
    #: True for data inside this package: real images, but few.
    embedded: bool = False
    #: Equal if all values are equal, whatever files they came from.
    digest: str = ""
    #: True if every file is the publisher's; None for data that nobody published under this name.
    published: bool | None = None


def load_dataset(name: str, data_root: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by name from `data_root`, else $SFAO_DATA, else the user's cache folder.

    The first call decodes the publisher's files and caches the arrays; later calls map them.
    """
    description = get_description(name)
    root = resolve_root(data_root)
    loaded = load_layout(description, description.find_layout(root), root)
    return Dataset(
        name=description.name,
        **{key: torch.from_numpy(array) for key, array in loaded.arrays.items()},
        classes=description.classes,
        mean=description.mean,
        std=description.std,
        complete=description.is_complete(len(loaded.arrays.train_labels), len(loaded.arrays.test_labels)),
        embedded=description.embedded,
        digest=loaded.digest,
        published=loaded.published,
    )
