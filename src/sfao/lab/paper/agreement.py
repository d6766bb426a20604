"""Agreement with the paper, counted: how many cells of its tables our runs confirm, by table and method."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfao.lab.paper.provenance import provenance

if TYPE_CHECKING:
    from sfao.lab.paper.cells import Cell
    from sfao.lab.paper.reproduced_table import ReproducedTable, Row


@dataclass(frozen=True)
class Tally:
    """Cells that agree, of those that can be judged; `filled` also counts those that one seed alone has."""

    agree: int = 0
    judged: int = 0
    filled: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.agree + other.agree, self.judged + other.judged, self.filled + other.filled)

    def __str__(self) -> str:
        return f"{self.agree} of {self.judged}"

    @property
    def share(self) -> float:
        """The share of the judged cells that agree; 0 without any."""
        return self.agree / self.judged if self.judged else 0.0


@dataclass(frozen=True)
class Judged:
    """The cells of one row, or of one method in a row whose columns are methods."""

    method: str
    tally: Tally
    #: A sentence on the row, where its name does not say enough.
    remark: str = ""
    #: Whether the paper's numbers are of another protocol than ours.
    is_foreign: bool = False


def count_cells(cells: "Iterable[Cell]") -> Tally:
    """Return the tally of cells that the paper and our runs both fill."""
    filled = [cell for cell in cells if cell.difference is not None]
    judged = [cell.agrees for cell in filled if cell.agrees is not None]
    return Tally(sum(judged), len(judged), len(filled))


def own_rows(table: "ReproducedTable") -> "list[Row]":
    """Return the rows of the paper; beside them stand others, to show what else the paper's could be."""
    return [row for row in table.rows if table.kind != "accuracy" or not row.remark]


def count_table(table: "ReproducedTable") -> Tally:
    return sum((one.tally for one in judge_table(table)), Tally())


def judge_table(table: "ReproducedTable") -> list[Judged]:
    """Return the cells by method: the row of tables 1 to 7, the column of the others."""
    return list(_judge_rows(table) if table.kind == "accuracy" else _judge_columns(table))


def _judge_rows(table: "ReproducedTable") -> Iterator[Judged]:
    for row in own_rows(table):
        yield Judged(row.name, count_cells(_of_tasks(table, row)), is_foreign=is_foreign(table, row.name))


def _of_tasks(table: "ReproducedTable", row: "Row") -> "list[Cell]":
    """Return the cells that the paper prints: not the average and the forgetting, which it does not."""
    return [cell for cell in row.cells if cell.column in table.columns[:-2]]


def _judge_columns(table: "ReproducedTable") -> Iterator[Judged]:
    for row in table.rows:
        methods = dict.fromkeys(cell.column.split(" ")[0] for cell in row.cells)
        for method in methods:
            own = [cell for cell in row.cells if cell.column.split(" ")[0] == method]
            yield Judged(method, count_cells(own), row.remark)


def is_foreign(table: "ReproducedTable", row: str) -> bool:
    """Tell whether the paper produced a row of tables 1 to 7 under another protocol than this table's."""
    return table.kind == "accuracy" and not table.as_released and bool(provenance(table.number, row).settings)
