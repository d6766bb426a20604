"""The tables of the page: what a cell shows, and what it sorts by."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from sfao.reports.comparison import Group, Row
from sfao.reports.comparison_views import best_cells, bytes_in_words, interval_text, mean_text, p_text
from sfao.reports.runs import LoadedRun


@dataclass(frozen=True)
class Column:
    title: str
    numeric: bool = True
    #: What the first click gives: the best on top.
    first: str = "ascending"


@dataclass(frozen=True)
class Cell:
    text: str
    #: What the column sorts by: a number, or None for a cell that goes last; text sorts as it is shown.
    value: float | None = None
    best: bool = False
    trouble: bool = False


@dataclass(frozen=True)
class TableRow:
    cells: list[Cell]
    #: Shown, but no rival of the others.
    apart: bool = False


@dataclass(frozen=True)
class Table:
    columns: list[Column]
    rows: list[TableRow]


RESULTS = (
    Column("method", numeric=False),
    Column("seeds", first="descending"),
    Column("accuracy", first="descending"),
    Column("95 % interval", first="descending"),
    Column("forgetting"),
    Column("held"),
    Column("time"),
    Column("\N{MULTIPLICATION SIGN} sgd"),
    Column("p"),
)
NOTES = Column("notes", numeric=False)
#: Where the ranked columns of the comparison's views (HEADINGS) stand in RESULTS.
RANKED = {2: 2, 4: 4, 5: 5, 6: 6}


def result_table(group: Group) -> Table:
    """One row a method, the best of the ranked columns marked."""
    best = {(row, RANKED[column]) for row, column in best_cells(group)}
    troubled = any(row.trouble for row in group.rows)
    rows = []
    for number, row in enumerate(group.rows):
        cells = _result_cells(row, group.baseline)
        shown = [
            Cell(text, value, best=(number, column) in best)
            for column, (text, value) in enumerate(cells[: len(RESULTS)])
        ]
        if troubled:
            shown.append(Cell(row.trouble, trouble=bool(row.trouble)))
        rows.append(TableRow(shown, apart=row.is_bound))
    return Table([*RESULTS, *([NOTES] if troubled else [])], rows)


def _result_cells(row: Row, baseline: str) -> list[tuple[str, float | None]]:
    accuracy, forgetting = row.accuracy, row.forgetting
    return [
        (row.method, None),
        (str(row.done) if row.whole else f"{row.done} of {row.asked}", row.done),
        (mean_text(accuracy), accuracy.mean if accuracy else None),
        (interval_text(accuracy), accuracy.low if accuracy else None),
        (mean_text(forgetting), forgetting.mean if forgetting else None),
        ("" if row.memory_bytes is None else bytes_in_words(row.memory_bytes), row.memory_bytes),
        ("" if row.seconds is None else f"{row.seconds:.1f} s", row.seconds),
        ("" if row.times_sgd is None else f"{row.times_sgd:.1f}", row.times_sgd),
        ("baseline" if row.method == baseline else p_text(row, baseline), row.test.p if row.test else None),
    ]


#: Metrics of single runs, by their names in a record.
METRICS = {
    "average_accuracy": "accuracy",
    "average_forgetting": "forgetting",
    "backward_transfer": "BWT",
    "forward_transfer": "FWT",
    "psm": "PSM",
    "psm_released": "PSM, released",
}
RUNS = (
    Column("run", numeric=False),
    Column("method", numeric=False),
    Column("seed"),
    Column("ended", numeric=False),
    *(Column(title, first="descending" if "forgetting" not in title else "ascending") for title in METRICS.values()),
    Column("steps"),
    Column("ms a step"),
    Column("time"),
    Column("held"),
)


def runs_table(runs: Sequence[LoadedRun]) -> Table:
    """One row a run."""
    return Table(list(RUNS), [TableRow(_run_cells(run)) for run in runs])


def _run_cells(run: LoadedRun) -> list[Cell]:
    record = run.record
    return [
        Cell(run.name),
        Cell(record.method),
        Cell(str(record.seed), record.seed),
        Cell(record.status, trouble=record.status != "done"),
        *(_metric(record.metrics.get(name)) for name in METRICS),
        Cell(f"{record.steps:,}", record.steps),
        Cell(f"{record.step_ms:.2f}", record.step_ms),
        Cell(f"{record.seconds:.1f} s", record.seconds),
        Cell(bytes_in_words(record.memory_bytes), record.memory_bytes),
    ]


def _metric(value: float | None) -> Cell:
    return (
        Cell("") if value is None or not isfinite(value) else Cell(f"{value:.4f}".replace("-", "\N{MINUS SIGN}"), value)
    )
