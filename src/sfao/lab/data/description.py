"""The description of a data set: everything that the rest of the program needs to know of it. Needs no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sfao.lab.data.errors import MissingData
from sfao.lab.data.file_check import DigestCheck, FileResult
from sfao.lab.data.formats.file_layout import FileLayout
from sfao.lab.data.publication import KnownFile, Publication


@dataclass(frozen=True)
class DatasetDescription:
    """One data set. `train` and `test` are the numbers of images that were published."""

    name: str
    title: str
    terms: str
    classes: int
    train: int
    test: int
    #: Mean and standard deviation of each channel, for pixels divided by 255.
    mean: tuple[float, ...]
    std: tuple[float, ...]
    #: Lists the ways the files may lie under a data root, the preferred one first.
    list_layouts: Callable[[Path], Sequence[FileLayout]]
    #: Compares the files of a layout with the published ones.
    verify: Callable[[FileLayout], list[FileResult]]
    #: None for a data set that is embedded in an installed package.
    publication: Publication | None = None
    #: Of the arrays of an embedded data set, which its reader refuses to give with another.
    digest: str = ""

    @property
    def embedded(self) -> bool:
        """True for real images inside an installed package: few, and never to be passed off as the full set."""
        return self.publication is None

    @property
    def known_files(self) -> Sequence[KnownFile]:
        """The files whose published digests are known; none where only an archive's is."""
        return self.verify.files if isinstance(self.verify, DigestCheck) else ()

    def is_complete(self, train: int, test: int) -> bool:
        """Tell whether these are at least as many training and test images as were published."""
        return train >= self.train and test >= self.test

    def find_layout(self, root: Path) -> FileLayout:
        """Return the first layout of which every file is there."""
        layouts = self.list_layouts(root)
        for layout in layouts:
            if not layout.missing:
                return layout
        raise MissingData(f"{self._explain(layouts)}\nGet it with: sfao data get {self.name} --data-root {root}")

    def find_nearest_layout(self, root: Path) -> FileLayout:
        """Return the layout that lacks the smallest share of its files, the first of several."""
        return min(self.list_layouts(root), key=lambda layout: len(layout.missing) / len(layout.files))

    def _explain(self, layouts: Sequence[FileLayout]) -> str:
        """Say what is missing."""
        begun = next((layout for layout in layouts if len(layout.missing) < len(layout.files)), None)
        if begun is not None:
            return f"`{self.name}` is not whole: {begun.folder} lacks {', '.join(path.name for path in begun.missing)}"
        return f"`{self.name}` was not found; looked in {', '.join(str(layout.folder) for layout in layouts)}"
