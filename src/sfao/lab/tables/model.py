"""The model of a table: columns that know what to show of a row, the rows, and the notes under them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

Row = TypeVar("Row")


def never(row: Any) -> bool:
    return False


def no_traits(row: Any) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A title, and what stands under it for each row."""

    title: str
    text: Callable[[Row], str]
    #: The number that a reader may sort by, None for a row that has none; columns of words sort by their text.
    value: Callable[[Row], float | None] | None = None
    is_best: Callable[[Row], bool] = never
    #: Tells whether the text is of something that went wrong.
    is_trouble: Callable[[Row], bool] = never
    align: Literal["left", "right"] = "left"
    #: Whether the first sort of a reader puts the largest on top.
    descending: bool = False
    #: Whether the text may take several lines where a terminal is narrow.
    wraps: bool = False


@dataclass(frozen=True)
class Table(Generic[Row]):
    title: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    #: Tells whether a row is shown for orientation only and not ranked with the others.
    is_apart: Callable[[Row], bool] = never
    #: {name: value} by which a reader of a page filters the row.
    traits: Callable[[Row], Mapping[str, str]] = no_traits


def best_among(
    rows: Sequence[Row], value: Callable[[Row], float], choose: Callable[[Sequence[float]], float]
) -> Callable[[Row], bool]:
    """Return the predicate of the rows whose value `choose` (max or min) picks; of none where all values are equal."""
    values = [value(row) for row in rows]
    if len(set(values)) < 2:
        return never
    best = choose(values)
    winners = [row for row, own in zip(rows, values, strict=True) if own == best]
    return lambda row: row in winners
