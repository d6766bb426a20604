"""One number of the paper beside ours: the difference, and whether it is more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from sfao.lab.paper.paper import PaperCell, stated_seeds
from sfao.lab.run.statistics import Spread, spread

#: How many standard errors, or standard deviations, still count as agreement.
REACH = 2.0
#: Half the last digit of the means of tables 1 to 7: they are not known any better.
PRINTED = 0.05


@dataclass(frozen=True)
class Cell:
    """The number of the paper and that of our runs; either may be missing."""

    column: str
    paper: float | None = None
    paper_std: float | None = None
    ours: Spread | None = None
    #: The smallest and the largest of our runs.
    lowest: float | None = None
    highest: float | None = None
    #: The paper's number is one run without a seed, or of unknown spread: it is held against the spread of ours.
    single: bool = False
    #: Neither has a spread: they are equal, to the digits printed, or they are not.
    exact: bool = False

    @property
    def difference(self) -> float | None:
        return None if self.paper is None or self.ours is None else self.ours.mean - self.paper

    @property
    def standard_error(self) -> float | None:
        """The error of the difference of the two means, the paper's over the seeds that it states."""
        if self.paper_std is None or self.ours is None or self.ours.std is None:
            return None
        return sqrt(self.paper_std**2 / stated_seeds() + self.ours.std**2 / self.ours.n)

    @property
    def tolerance(self) -> float | None:
        """The difference up to which the two agree; None when that cannot be said."""
        if self.difference is None or self.ours is None:
            return None
        if self.exact:
            return 0.005
        if self.single:
            return None if self.ours.std is None else REACH * self.ours.std
        return None if self.standard_error is None else max(REACH * self.standard_error, PRINTED)

    @property
    def agrees(self) -> bool | None:
        """Tell whether the two are within two standard errors, or equal as printed; None when that cannot be said.

        One run of the paper has to be within two of our standard deviations.
        """
        if self.difference is None or self.tolerance is None:
            return None
        return abs(self.difference) <= self.tolerance

    @property
    def in_range(self) -> bool | None:
        """Tell whether the paper's number lies between our smallest and our largest."""
        if self.paper is None or self.lowest is None or self.highest is None:
            return None
        return self.lowest <= self.paper <= self.highest


def compare_with_paper(
    printed: PaperCell, values: Sequence[float], *, single: bool = False, exact: bool = False
) -> Cell:
    """Return a cell of the paper beside the values of our runs."""
    return make_cell(printed.column, values, printed.mean, printed.std, single=single, exact=exact)


def make_cell(
    column: str,
    values: Sequence[float],
    paper: float | None = None,
    paper_std: float | None = None,
    *,
    single: bool = False,
    exact: bool = False,
) -> Cell:
    if not values:
        return Cell(column, paper, paper_std, single=single, exact=exact)
    return Cell(column, paper, paper_std, spread(values), min(values), max(values), single, exact)
