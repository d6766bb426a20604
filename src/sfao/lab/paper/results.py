"""A table of the paper filled with the results of our runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from sfao.lab.data.sets import DATASETS
from sfao.lab.metrics import Spread, average_forgetting, spread
from sfao.lab.paper.archive import Archive, check_same_data
from sfao.lab.paper.series import WHOLE, Scale, Series, table_series
from sfao.lab.paper.tables import PaperNumber, PaperTable, implied_forgetting, paper_table
from sfao.lab.run.errors import FolderError
from sfao.lab.run.record import Record

AVERAGE, FORGETTING = "average", "F"
#: The two forms of the plasticity-stability measure in table 11: {metric: formula}
PSM_FORMULAS = {"psm_released": "(1 - F) / 2, as released", "psm": "(A_final + A_avg) / 2, as printed"}


@dataclass(frozen=True)
class Cell:
    """A number of the paper and that of our runs; either may be missing."""

    column: str
    paper: PaperNumber | None = None
    ours: Spread | None = None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.paper is None or self.ours is None else self.ours.mean - self.paper.mean


@dataclass(frozen=True)
class Row:
    """A row of the paper, and the runs for it."""

    name: str
    cells: list[Cell]
    #: The runs that are done and count, and those that failed or diverged and do not.
    records: list[Record]
    failed: list[Record]
    #: The formula of our numbers, in table 11.
    formula: str = ""

    @property
    def seeds(self) -> list[int]:
        """The numbers of seeds of the cells, each once, sorted."""
        return sorted({cell.ours.n for cell in self.cells if cell.ours})

    @property
    def shares(self) -> list[float]:
        """The shares of the published training images that the runs had, each once, sorted."""
        return sorted({share_of_data(record) for record in self.records})


@dataclass(frozen=True)
class FilledTable:
    """A table of the paper under a preset."""

    paper: PaperTable
    preset: str
    as_released: bool
    scale: Scale
    columns: list[str]
    rows: list[Row]

    @property
    def is_empty(self) -> bool:
        return all(not row.records for row in self.rows)

    @property
    def is_partial(self) -> bool:
        """True if some runs did not have all training images."""
        return any(share < 1 for row in self.rows for share in row.shares)

    def as_json(self) -> dict[str, Any]:
        """Return plain containers with numbers in full precision."""
        rows = [
            {
                "name": row.name,
                "formula": row.formula,
                "shares": row.shares,
                "failed": len(row.failed),
                "cells": [{**asdict(cell), "difference": cell.difference} for cell in row.cells],
            }
            for row in self.rows
        ]
        about = {"table": self.paper.name, "title": self.paper.title, "kind": self.paper.kind}
        scale = {"fraction": self.scale.fraction, "quick": self.scale.is_quick}
        return {**about, "preset": self.preset, "as_released": self.as_released, **scale, "rows": rows}


def share_of_data(record: Record) -> float:
    """Return the share of the published training images that a run had."""
    known = DATASETS.get(record.data["name"])
    return 1.0 if record.data["complete"] or known is None else float(record.data["train"] / known.train)


def fill_table(
    number: int, preset: str, archive: Archive, *, scale: Scale = WHOLE, as_released: bool = False
) -> FilledTable:
    """Return a table with the records of the archive; cells without records stay empty."""
    table, wanted = paper_table(number), table_series(number, preset, as_released)
    found = {series: archive.find(series, scale) for series in wanted.values()}
    for series, records in found.items():
        check_same_data(records, f"{table.name}, {series.name} on {series.benchmark},")
    if table.kind == "accuracy":
        rows = [_fill_tasks(table, row, series, found[series]) for (row, _), series in wanted.items()]
        columns = [*table.columns, AVERAGE, FORGETTING]
    else:
        by_row = {row: {column: found[wanted[row, column]] for column in table.columns} for row in table.rows}
        rows = [filled for row, own in by_row.items() for filled in _fill_methods(table, row, own)]
        columns = list(table.columns)
    return FilledTable(table, preset, as_released and table.kind == "accuracy", scale, columns, rows)


def _fill_tasks(table: PaperTable, row: str, series: Series, records: Sequence[Record]) -> Row:
    """Return a row of tables 1 to 7: the accuracy on each task at the end, their mean, and the forgetting."""
    done, failed = _split(records)
    tasks = len(table.columns)
    for record in done:
        if len(record.accuracy_matrix) < tasks:
            raise FolderError(
                f"{table.name} must be of runs with {tasks} tasks, but {record.method} seed {record.seed} has "
                f"{len(record.accuracy_matrix)}"
            )
    # A stream may have more tasks than the table; they are left out.
    matrices = [[line[:tasks] for line in record.accuracy_matrix[:tasks]] for record in done]
    cells = [
        Cell(column, table.rows[row][column], _spread(100 * matrix[-1][task] for matrix in matrices))
        for task, column in enumerate(table.columns)
    ]
    average = _spread(100 * fmean(matrix[-1]) for matrix in matrices)
    forgetting = _spread(100 * average_forgetting(matrix) for matrix in matrices)
    cells += [
        Cell(AVERAGE, PaperNumber(table.average(row)), average),
        Cell(FORGETTING, _implied_forgetting(table, row, series), forgetting),
    ]
    return Row(row, cells, done, failed)


def _implied_forgetting(table: PaperTable, row: str, series: Series) -> PaperNumber | None:
    """Return the forgetting that table 11 implies for a method, at the threshold of our runs."""
    options = series.config().options
    column = row if row != "SFAO" else f"SFAO {options['accept_above']:.2f}"
    implied = implied_forgetting(table.stream, column)
    return None if implied is None else PaperNumber(100 * implied)


def _fill_methods(table: PaperTable, row: str, found: dict[str, list[Record]]) -> Iterable[Row]:
    """Yield the rows of tables 8 to 11 for a stream: one, or one per formula of the measure."""
    split = {column: _split(records) for column, records in found.items()}
    done = [record for records, _ in split.values() for record in records]
    failed = [record for _, records in split.values() for record in records]
    values = {VALUES[table.kind]: ""} if table.kind != "psm" else {_metric(n): text for n, text in PSM_FORMULAS.items()}
    for value, formula in values.items():
        cells = [
            Cell(column, table.rows[row][column], _spread(value(record) for record in records))
            for column, (records, _) in split.items()
        ]
        yield Row(row, cells, done, failed, formula)


def _metric(name: str) -> Callable[[Record], float]:
    return lambda record: record.metrics[name]


#: The number of a record in tables 8 to 10, by their kind.
VALUES: dict[str, Callable[[Record], float]] = {
    "memory": lambda record: record.memory_bytes / 2**20,
    "projections": lambda record: float(record.directions),
    "average_accuracy": _metric("average_accuracy"),
}


def _split(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Return the records that are done, and the others."""
    done = [record for record in records if record.status == "done"]
    return done, [record for record in records if record.status != "done"]


def _spread(values: Iterable[float]) -> Spread | None:
    found = list(values)
    return spread(found) if found else None
