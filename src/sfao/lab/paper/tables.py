"""The numbers that the paper prints, and what produced each row."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any, Literal

from sfao.lab.safe_io import parse_yaml

Kind = Literal["accuracy", "memory", "projections", "average_accuracy", "psm"]
#: The table from which the paper's forgetting follows.
PSM_TABLE = 11


@dataclass(frozen=True)
class PaperNumber:
    """A mean as printed, in percent for kind `accuracy`, and its standard deviation where the paper prints one."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Source:
    """What produced a row, in one sentence, and the changes to the released preset that do the same."""

    text: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    number: int
    title: str
    kind: Kind
    #: The stream of a table with one column per task; elsewhere the rows are streams.
    stream: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, PaperNumber]]
    sources: dict[str, Source]

    @property
    def name(self) -> str:
        return f"table{self.number}"

    def average(self, row: str) -> float:
        """Return the mean over the tasks of a row; the paper prints no spread of it."""
        return fmean(number.mean for number in self.rows[row].values())


def table_numbers() -> tuple[int, ...]:
    """Return the numbers of all tables."""
    return tuple(_read()["tables"])


@cache
def paper_table(number: int) -> PaperTable:
    """Return a table by its number."""
    content = _read()["tables"][number]
    columns = tuple(content["columns"])
    return PaperTable(
        number=number,
        title=content["title"],
        kind=content["kind"],
        stream=content.get("stream", ""),
        columns=columns,
        rows={
            row: {column: _read_number(value) for column, value in zip(columns, values, strict=True)}
            for row, values in content["rows"].items()
        },
        sources={
            row: Source(source["source"], source.get("settings", {})) for row, source in content["sources"].items()
        },
    )


def stated_seeds() -> int:
    """Return the number of seeds that the paper states for its means."""
    count: int = _read()["seeds"]
    return count


def implied_forgetting(stream: str, column: str) -> float | None:
    """Return the F of the released code from table 11, where PSM = (1 - F) / 2; None where that has no such cell."""
    printed = paper_table(PSM_TABLE).rows.get(stream, {}).get(column)
    return None if printed is None else 1 - 2 * printed.mean


def _read_number(value: float | list[float]) -> PaperNumber:
    return PaperNumber(*value) if isinstance(value, list) else PaperNumber(value)


@cache
def _read() -> dict[str, Any]:
    content: dict[str, Any] = parse_yaml((files(__package__) / "tables.yaml").read_text(encoding="utf-8"))
    return content
