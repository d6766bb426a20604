"""The numbers that the paper prints, cell by cell."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from sfao.lab.safe_io import parse_yaml


@dataclass(frozen=True)
class PaperCell:
    """A number of the paper; `std` where it prints one. Tables 1 to 7 are in percent."""

    table: int
    title: str
    row: str
    column: str
    mean: float
    std: float | None


@dataclass(frozen=True)
class PaperTable:
    number: int
    title: str
    #: accuracy (one column per task), memory, projections, average_accuracy or psm.
    kind: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[PaperCell, ...]]

    @property
    def name(self) -> str:
        return f"table{self.number}"


@dataclass(frozen=True)
class SingleRun:
    """The numbers that a notebook printed, once and without a seed."""

    average_accuracy: float
    forgetting: float


def table_numbers() -> tuple[int, ...]:
    return tuple(_read()["tables"])


@cache
def paper_table(number: int) -> PaperTable:
    content = _read()["tables"][number]
    title, columns = content["title"], tuple(content["columns"])
    rows = {
        row: tuple(_cell(number, title, row, *cell) for cell in zip(columns, values, strict=True))
        for row, values in content["rows"].items()
    }
    return PaperTable(number, title, content["kind"], columns, rows)


def stated_seeds() -> int:
    """Return the number of seeds that the paper says its means are over."""
    count: int = _read()["seeds"]
    return count


def average(number: int, row: str) -> float:
    """Return the mean over the tasks of a row of tables 1 to 7; the paper prints no spread of it."""
    return fmean(cell.mean for cell in paper_table(number).rows[row])


def implied_forgetting(stream: str, column: str) -> float | None:
    """Return F of the released code from table 11, whose PSM is (1 - F) / 2; None where it has no such cell."""
    table = paper_table(11)
    return next((1 - 2 * cell.mean for cell in table.rows.get(stream, ()) if cell.column == column), None)


def single_run(stream: str) -> SingleRun | None:
    """Return the numbers that SFAO.ipynb printed for a stream, accepting above 0.80; None without any."""
    found = _read()["single_runs"].get(stream)
    return SingleRun(*found) if found else None


def _cell(number: int, title: str, row: str, column: str, value: float | list[float]) -> PaperCell:
    mean, std = value if isinstance(value, list) else (value, None)
    return PaperCell(number, title, row, column, mean, std)


@cache
def _read() -> dict[str, Any]:
    content: dict[str, Any] = parse_yaml((files(__name__.rpartition(".")[0]) / "tables.yaml").read_text())
    return content
