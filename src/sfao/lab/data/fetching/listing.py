"""All data sets at a glance: their contents, and whether they are here, whole or in part."""

import os
from dataclasses import dataclass
from pathlib import Path

from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.errors import DataError, MissingData
from sfao.lab.data.formats.file_layout import Counts
from sfao.lab.data.root import resolve_root
from sfao.lab.data.sets import DATASETS


@dataclass(frozen=True)
class DatasetSummary:
    """One row of `sfao data list`."""

    name: str
    title: str
    terms: str
    #: As published.
    train: int
    test: int
    classes: int
    #: Bytes to download; 0 for an embedded data set.
    download: int
    #: The folder or file that would be read; None when `sfao data get` is needed first.
    where: Path | None
    #: The images that are there; None when there are none, or when the files are too damaged to be counted.
    train_here: int | None
    test_here: int | None
    #: False when there are fewer images than published.
    complete: bool
    #: Why the files cannot be read now; empty when they can.
    unreadable: str = ""


def list_datasets(data_root: str | os.PathLike[str] | None = None) -> list[DatasetSummary]:
    """Return one summary per data set."""
    root = resolve_root(data_root)
    return [_summarise(description, root) for description in DATASETS.values()]


def _summarise(description: DatasetDescription, root: Path) -> DatasetSummary:
    where, counts, unreadable = _locate(description, root)
    publication = description.publication
    return DatasetSummary(
        name=description.name,
        title=description.title,
        terms=description.terms,
        train=description.train,
        test=description.test,
        classes=description.classes,
        download=publication.download_size if publication else 0,
        where=where,
        train_here=counts[0] if counts else None,
        test_here=counts[1] if counts else None,
        complete=counts is not None and description.is_complete(*counts),
        unreadable=unreadable,
    )


def _locate(description: DatasetDescription, root: Path) -> tuple[Path | None, Counts | None, str]:
    """Return the place of the data, the numbers of images there, and why it cannot be read."""
    try:
        layout = description.find_layout(root)
    except MissingData:
        return None, None, ""
    except OSError as error:
        return root, None, error.strerror or str(error)
    try:
        return layout.place, layout.count_images(), ""
    except OSError as error:
        return layout.place, None, error.strerror or str(error)
    except DataError:  # verifying tells what is wrong
        return layout.place, None, ""
