"""Data sets by name, as tensors."""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from sfao.lab.data.cache import Loaded, find_cached, keep_cached
from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.errors import name_read_errors
from sfao.lab.data.root import resolve_root
from sfao.lab.data.seal import Origin
from sfao.lab.data.sets import get_description
from sfao.lab.data.source import Source


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
    #: Equal where all values are: tells these data from others of the same name and size.
    digest: str = ""
    #: True when every file is known to be the publisher's; None for data that nobody published under this name.
    published: bool | None = None


def load_dataset(name: str, data_root: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by name from `data_root`, else $SFAO_DATA, else the user's cache folder.

    The first call decodes the publisher's files and caches the arrays; later calls map them.
    """
    description = get_description(name)
    root = resolve_root(data_root)
    with name_read_errors(root):
        layout = description.find_layout(root)
    with name_read_errors(layout.folder):
        if description.embedded:  # small files, read quickly, which leave nothing in the data root
            return _make_dataset(description, Loaded(layout.read(), description.digest), published=True)
        return _load(Source(description, layout, root))


def _load(source: Source) -> Dataset:
    """Return the data from the cache if it has what was read from these very files, else from them."""
    name = source.description.name
    seal = source.recall() or source.check()
    loaded = find_cached(name, seal.digest, source.folders)
    if loaded is None:
        seal, arrays = source.read()  # all files are checked: what is remembered may be the times of folders alone
        loaded = keep_cached(name, seal.digest, source.folders, arrays)
    return _make_dataset(source.description, loaded, published=seal.origin is Origin.PUBLISHED)


def _make_dataset(description: DatasetDescription, loaded: Loaded, *, published: bool) -> Dataset:
    arrays = loaded.arrays
    return Dataset(
        name=description.name,
        **{key: torch.from_numpy(array) for key, array in arrays.items()},
        classes=description.classes,
        mean=description.mean,
        std=description.std,
        complete=description.is_complete(len(arrays.train_labels), len(arrays.test_labels)),
        embedded=description.embedded,
        digest=loaded.digest,
        published=published,
    )
