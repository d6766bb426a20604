"""A table of the paper, rebuilt from records."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from sfao.lab.metrics import average_forgetting, average_forgetting_released
from sfao.lab.paper.archive import Archive
from sfao.lab.paper.cells import Cell, compare_with_paper, make_cell
from sfao.lab.paper.paper import (
    PaperTable,
    average,
    implied_forgetting,
    paper_table,
    single_run,
)
from sfao.lab.paper.protocol import STREAM_OF, Protocol, Series, protocol
from sfao.lab.paper.provenance import provenance
from sfao.lab.paper.scale import WHOLE, Scale
from sfao.lab.run.errors import FolderError
from sfao.lab.run.record import Record, list_digests

AVERAGE, FORGETTING = "average", "F"
RELEASED_THRESHOLD = "SFAO 0.80"


@dataclass(frozen=True)
class Row:
    """A row of the paper, and the runs for it."""

    name: str
    cells: list[Cell]
    #: Folders of the runs without their seeds: split-mnist/sfao.
    runs: list[str]
    #: Runs that did not end well, in words.
    trouble: str = ""
    #: A sentence on the row, where the name does not say enough.
    remark: str = ""

    @property
    def counts(self) -> list[int]:
        return sorted({cell.ours.n for cell in self.cells if cell.ours})

    @property
    def empty(self) -> bool:
        return not self.counts


@dataclass(frozen=True)
class ReproducedTable:
    number: int
    title: str
    kind: str
    preset: str
    as_released: bool
    #: The number of seeds that every series was to have.
    asked: int
    columns: list[str]
    rows: list[Row]
    #: The data of the runs, where they are not the whole set, and the machines.
    data: list[str] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)
    #: {row of the paper: its origin}
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"table{self.number}"

    @property
    def empty(self) -> bool:
        return all(row.empty for row in self.rows)

    @property
    def remarks(self) -> list[str]:
        """The remarks of the rows, each once; a row refers to one by its number, counted from 1."""
        return _unique(row.remark for row in self.rows if row.remark)


def reproduce_table(
    number: int, preset: str, archive: Archive, *, asked: int, scale: Scale = WHOLE, as_released: bool = False
) -> ReproducedTable:
    """Return the table as the records of the archive fill it; rows without records stay empty."""
    printed, runs = paper_table(number), protocol(number, preset, as_released)
    as_released = as_released and printed.kind == "accuracy"  # the others have no rows of another protocol
    found = {series: archive.of(series, scale) for series in (*runs.cells.values(), *runs.sweep.values())}
    _check_same_data(number, found)
    if printed.kind == "accuracy":
        _check_tasks(number, len(printed.columns), found)
    filled = _RowFiller(printed, runs, found, scale)
    rows = filled.fill_by_task() if printed.kind == "accuracy" else filled.fill_by_column()
    used = [record for series in runs.cells.values() for record in found[series]]
    note = scale.describe(dict.fromkeys(series.config().model.name for series in runs.cells.values()))
    return ReproducedTable(
        number=number,
        title=printed.title,
        kind=printed.kind,
        preset=preset,
        as_released=as_released,
        asked=asked,
        columns=[*printed.columns, AVERAGE, FORGETTING] if printed.kind == "accuracy" else list(printed.columns),
        rows=rows,
        data=_unique(_data(record) for record in used),
        caveats=_unique(caveat for caveat in (note, *map(_caveat, used)) if used and caveat),
        machines=_unique(_machine(record) for record in used),
        sources={row: provenance(number, row).source for row in printed.rows},
    )


class _RowFiller:
    """The rows of a table from the records of its series."""

    def __init__(self, printed: PaperTable, runs: Protocol, found: dict[Series, list[Record]], scale: Scale) -> None:
        self.printed, self.runs, self.found, self.scale = printed, runs, found, scale

    def done(self, series: Series) -> list[Record]:
        return [record for record in self.found[series] if record.status == "done"]

    # -- Tables 1 to 7 -----------------------------------------------------------------------------------

    def fill_by_task(self) -> list[Row]:
        rows = [self._fill_tasks(row, series) for (row, _), series in self.runs.cells.items()]
        return [*rows, *self._best_of_the_sweep(), *self._single_run()]

    def _fill_tasks(self, row: str, series: Series, remark: str = "") -> Row:
        printed, done = self.printed.rows[row], self.done(series)
        tasks = len(printed)
        cells = [
            compare_with_paper(one, [100 * record.accuracy_matrix[tasks - 1][task] for record in done])
            for task, one in enumerate(printed)
        ]
        whole = make_cell(AVERAGE, [_average(record, tasks) for record in done], average(self.printed.number, row))
        forgetting = make_cell(
            FORGETTING, [_measure_forgetting(record, tasks) for record in done], self._implied_forgetting(row, series)
        )
        return Row(row, [*cells, whole, forgetting], [self._folder(series)], self._trouble([series]), remark)

    def _implied_forgetting(self, row: str, series: Series) -> float | None:
        """Return the forgetting that table 11 implies for the method, at the threshold that is run."""
        options = series.config().options
        if options.get("memory") == "subspace":  # which has no threshold
            return None
        column = f"SFAO {options['accept_above']:.2f}" if row == "SFAO" else row
        implied = implied_forgetting(STREAM_OF[self.printed.number], column)
        return None if implied is None else 100 * implied

    def _best_of_the_sweep(self) -> list[Row]:
        """Return SFAO at the threshold with the best mean accuracy on test data, once all four have been run."""
        done = {column: self.done(series) for column, series in self.runs.sweep.items()}
        if not all(done.values()):
            return []
        tasks = len(self.printed.columns)
        best = max(done, key=lambda column: fmean(_average(record, tasks) for record in done[column]))
        remark = f"best of four thresholds on test data, as the paper chose: {best.removeprefix('SFAO ')}"
        return [self._fill_tasks("SFAO", self.runs.sweep[best], remark)]

    def _single_run(self) -> list[Row]:
        """Return the run that SFAO.ipynb printed, beside the spread of our runs at its threshold."""
        theirs = single_run(STREAM_OF[self.printed.number])
        series = self.runs.sweep[RELEASED_THRESHOLD]
        done = self.done(series)
        if theirs is None or not done:
            return []
        tasks = len(self.printed.columns)
        released = [100 * average_forgetting_released(_first_tasks(record, tasks)) for record in done]
        cells = [
            *(Cell(column) for column in self.printed.columns),
            make_cell(AVERAGE, [_average(r, tasks) for r in done], 100 * theirs.average_accuracy, single=True),
            make_cell(FORGETTING, released, 100 * theirs.forgetting, single=True),
        ]
        remark = "the one run that SFAO.ipynb shows, threshold 0.80; F as that code computes it"
        return [Row("SFAO", cells, [self._folder(series)], self._trouble([series]), remark)]

    # -- Tables 8 to 11 ------------------------------------------------------------------------------------

    def fill_by_column(self) -> list[Row]:
        kind = self.printed.kind
        if kind == "psm":
            formulas = {"psm_released": "(1 - F) / 2, as the released code", "psm": "(A_final + A_avg) / 2, as printed"}
            return [self._fill_columns(r, _metric(m), text) for r in self.printed.rows for m, text in formulas.items()]
        return [self._fill_columns(row, VALUES[kind]) for row in self.printed.rows]

    def _fill_columns(self, row: str, value: Callable[[Record], float], remark: str = "") -> Row:
        exact = self.printed.kind in ("memory", "projections")
        cells, series = [], [self.runs.cells[row, column] for column in self.printed.columns]
        for one, own in zip(self.printed.rows[row], series, strict=True):
            cells.append(
                compare_with_paper(one, [value(record) for record in self.done(own)], single=not exact, exact=exact)
            )
        return Row(row, cells, _unique(self._folder(s) for s in series if self.done(s)), self._trouble(series), remark)

    def _folder(self, series: Series) -> str:
        return f"{series.place(self.scale)}/{series.name}"

    def _trouble(self, series: Sequence[Series]) -> str:
        records = [record for one in series for record in self.found[one] if record.status != "done"]
        statuses = _unique(record.status for record in records)
        return ", ".join(f"{sum(record.status == status for record in records)} {status}" for status in statuses)


def _metric(name: str) -> Callable[[Record], float]:
    return lambda record: record.metrics[name]


#: The number of a record in the columns of tables 8 to 10.
VALUES: dict[str, Callable[[Record], float]] = {
    "memory": lambda record: record.memory_bytes / 2**20,
    "projections": lambda record: float(record.directions),
    "average_accuracy": _metric("average_accuracy"),
}


def _first_tasks(record: Record, tasks: int) -> list[list[float]]:
    """Return the accuracy matrix of the first tasks, as if the stream had no more."""
    return [row[:tasks] for row in record.accuracy_matrix[:tasks]]


def _average(record: Record, tasks: int) -> float:
    return 100 * fmean(_first_tasks(record, tasks)[-1])


def _measure_forgetting(record: Record, tasks: int) -> float:
    return 100 * average_forgetting(_first_tasks(record, tasks))


def _check_same_data(number: int, found: dict[Series, list[Record]]) -> None:
    """Check that all numbers of a benchmark are on the same data: others must not stand in one table."""
    seen: dict[str, dict[str, str]] = {}
    for series, records in found.items():
        for record in records:
            seen.setdefault(series.benchmark, {}).setdefault(_data(record), f"{series.name} seed {record.seed}")
    for benchmark, kinds in seen.items():
        if len(kinds) > 1:
            (one, first), (other, second) = list(kinds.items())[:2]
            raise FolderError(
                f"table{number} must be of one data set, but of {benchmark} {first} is on {one} and {second} on {other}"
            )
    for benchmark in seen:
        of_benchmark = (record for series, own in found.items() if series.benchmark == benchmark for record in own)
        digests = list_digests(of_benchmark)
        if len(digests) > 1:
            raise FolderError(
                f"table{number} must be of one data set, but of {benchmark} some runs are on images of the digest "
                f"{digests[0]} and some on those of {digests[1]}"
            )


def _check_tasks(number: int, tasks: int, found: dict[Series, list[Record]]) -> None:
    """Check that the records have a column for every task: one of fewer is not of this stream."""
    for series, records in found.items():
        for record in records:
            if record.status == "done" and len(record.accuracy_matrix) < tasks:
                raise FolderError(
                    f"table{number} must be of runs of {tasks} tasks, but {series.name} seed {record.seed} "
                    f"has {len(record.accuracy_matrix)}"
                )


def _data(record: Record) -> str:
    data = record.data
    return f"{data['train']:,} training and {data['test']:,} test images of {data['name']}"


def _caveat(record: Record) -> str:
    data = record.data
    if record.config.get("fraction", 1.0) < 1:
        return f"On a slice of {data['name']}, {data['train']:,} training images: not results on all of it."
    if not data["complete"]:
        return f"On a part of {data['name']}, {data['train']:,} training images: not results on all of it."
    if data.get("published") is False:
        return f"On files of {data['name']} that are not known to be the publisher's."
    return ""


def _machine(record: Record) -> str:
    versions = record.versions
    device = versions.get("gpu") or f"{versions['device']} ({versions['machine']})"
    return f"{device}, torch {versions['torch']}, sfao {versions['sfao']}"


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
