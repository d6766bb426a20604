"""The figures of the results page: its tables at a glance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sfao.lab.metrics import average_forgetting_released
from sfao.lab.paper.agreement import own_rows
from sfao.lab.paper.archive import Archive
from sfao.lab.paper.formats import describe_protocol
from sfao.lab.paper.paper import implied_forgetting, paper_table, single_run
from sfao.lab.paper.paper_figures import draw_figure
from sfao.lab.paper.protocol import METHODS, STREAM_OF, THRESHOLDS, figure_series, protocol
from sfao.lab.paper.reproduced_table import AVERAGE, RELEASED_THRESHOLD, ReproducedTable, Row
from sfao.lab.report.paper_figures import Measurement, Pair, paper_and_ours, threshold_sweep
from sfao.lab.report.runs import LoadedRun
from sfao.lab.report.style import Drawing
from sfao.lab.run.record import Record
from sfao.lab.run.statistics import spread

#: Tables of the paper: average accuracy and PSM against the threshold; the second has all streams.
ACCURACY_TABLE, PSM_TABLE = 10, 11
PAPER, OURS = "paper", "ours"
#: Ends the heading of what is not on all of its data.
PARTIAL = " *"
TITLE = "Average accuracy, paper and ours"
AGAIN = ", every row as the paper's"
LOOK = "one seed on a part of the data"


# -- Average accuracy, paper and ours ---------------------------------------------------------------------------


def draw_agreement(tables: Sequence[ReproducedTable], as_released: bool = False) -> Drawing | None:
    """Draw the average of every row of the tables with one column per task; None without any.

    The tables are those of one protocol, or those `as_released`; none that is but a look.
    """
    shown = [table for table in tables if table.as_released == as_released and not is_look(table)]
    return _draw_averages(shown, "paper-and-ours" + "-as-released" * as_released, TITLE + AGAIN * as_released)


def draw_looks(tables: Sequence[ReproducedTable], as_released: bool = False) -> Drawing | None:
    """Draw the same of the tables that are but a look: one seed on a part of the data; None without any."""
    shown = [table for table in tables if table.as_released == as_released and is_look(table)]
    name = "paper-and-ours-one-seed" + "-as-released" * as_released
    return _draw_averages(shown, name, f"{TITLE}{AGAIN * as_released}: a look at more tables, {LOOK}")


def is_look(table: ReproducedTable) -> bool:
    """Tell whether a table has no more than one seed, and that on a part of the data."""
    return bool(table.caveats) and max((count for row in table.rows for count in row.counts), default=0) <= 1


def _draw_averages(tables: Sequence[ReproducedTable], name: str, title: str) -> Drawing | None:
    shown = [table for table in tables if table.kind == "accuracy"]
    if not shown:
        return None
    rows = {_make_heading(table): own_rows(table) for table in shown}
    counts = {count for own in rows.values() for row in own for count in row.counts}
    return paper_and_ours(
        {heading: [_pair(row) for row in own] for heading, own in rows.items()},
        name=name,
        title=title,
        axis="average accuracy after the last task, %",
        caption=(
            f"Average accuracy after the last task, preset {shown[0].preset}, "
            f"{describe_protocol(shown[0].as_released)}. Rings: "
            "the paper, which prints no spread of it. Dots: the mean of our runs, with their standard deviation as a "
            "bar"
            + (", which one seed alone has not" if 1 in counts else "")
            + ". Every panel has its own scale."
            + _partial_note(any(table.caveats for table in shown))
        ),
    )


def _partial_note(there_are: bool) -> str:
    return f"{PARTIAL}: on a part of the training data." if there_are else ""


def _make_heading(table: ReproducedTable) -> str:
    """Table 4, Split CIFAR-100, WRN *, n = 1: what is not on all data, and what is but a look, says so."""
    look = ", n = 1" if is_look(table) else ""
    return f"Table {table.number}, {STREAM_OF[table.number]}{PARTIAL if table.caveats else ''}{look}"


def _pair(row: Row) -> Pair:
    (own,) = [cell for cell in row.cells if cell.column == AVERAGE]
    mean, std = (own.ours.mean, own.ours.std) if own.ours else (None, None)
    return Pair(row.name, METHODS[row.name], own.paper, mean, std)


# -- The threshold ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Measure:
    """A number of SFAO at a threshold: the paper's for a stream and a column, and that of a run."""

    printed: Callable[[str, str], float | None]
    of_run: Callable[[Record], float]


def _printed_accuracy(stream: str, column: str) -> float | None:
    """Return the accuracy of the paper, or of the one run that its notebook shows."""
    printed = {cell.column: cell.mean for cell in paper_table(ACCURACY_TABLE).rows.get(stream, ())}
    shown = single_run(stream)
    return printed.get(column, shown.average_accuracy if shown and column == RELEASED_THRESHOLD else None)


MEASURES = {
    "average accuracy": _Measure(_printed_accuracy, lambda record: record.metrics["average_accuracy"]),
    "forgetting": _Measure(implied_forgetting, lambda record: average_forgetting_released(record.accuracy_matrix)),
}


def draw_threshold_effect(preset: str, archive: Archive) -> Drawing | None:
    """Draw SFAO at the thresholds that the paper tried, on its streams; None without a run at any of them."""
    swept = {stream: _sweep(preset, archive, stream) for stream in paper_table(PSM_TABLE).rows}
    swept = {stream: runs for stream, runs in swept.items() if runs}
    if not swept:
        return None
    partial = {
        stream for stream, runs in swept.items() if not all(r.data["complete"] for own in runs.values() for r in own)
    }
    return threshold_sweep(
        {
            name: {
                stream + PARTIAL * (stream in partial): {
                    PAPER: _paper_points(measure, stream),
                    OURS: _our_points(measure, runs),
                }
                for stream, runs in swept.items()
            }
            for name, measure in MEASURES.items()
        },
        [PAPER, OURS],
        name=f"thresholds-{preset}",
        title="What the threshold does",
        caption=(
            f"SFAO against the threshold above which it accepts, preset {preset}: the mean over seeds, bars one "
            "standard deviation. Open: the paper's single runs (tables 10 and 11; for Split MNIST, of which it prints "
            "no accuracies, the one that SFAO.ipynb shows). Forgetting is F as the released code computes it; the "
            "paper's is what its PSM, (1 - F) / 2, implies. Every panel has its own scale."
            + _partial_note(bool(partial))
        ),
    )


def _sweep(preset: str, archive: Archive, stream: str) -> dict[str, list[Record]]:
    """Return {column: the runs that are done}, of columns that have any."""
    runs = protocol(PSM_TABLE, preset).cells
    found = {column: [r for r in archive.of(runs[stream, column]) if r.status == "done"] for column in THRESHOLDS}
    return {column: done for column, done in found.items() if done}


def _paper_points(measure: _Measure, stream: str) -> list[Measurement]:
    printed = {column: measure.printed(stream, column) for column in THRESHOLDS}
    return [Measurement(THRESHOLDS[column], value) for column, value in printed.items() if value is not None]


def _our_points(measure: _Measure, runs: Mapping[str, Sequence[Record]]) -> list[Measurement]:
    found = {column: spread([measure.of_run(record) for record in done]) for column, done in runs.items()}
    return [Measurement(THRESHOLDS[column], own.mean, own.std) for column, own in found.items()]


# -- The paper's figure 1 -----------------------------------------------------------------------------------------


def draw_figure1(preset: str, archive: Archive) -> Drawing | None:
    """Draw the forgetting of every method, for which records suffice; None without any."""
    records = {series.name: archive.of(series) for series in figure_series("figure1", preset)}
    runs = [LoadedRun(Path(), f"{name}-{own.seed}", own, []) for name, found in records.items() for own in found]
    drawing = draw_figure("figure1", runs) if runs else None
    return drawing and replace(drawing, name=f"figure1-{preset}", title=f"Figure 1, {drawing.title.lower()}")


# -- The paper's figure 2 -----------------------------------------------------------------------------------------


def draw_figure2(preset: str, samples: Sequence[LoadedRun]) -> Drawing | None:
    """Draw the geometry of an update from the steps that are kept; None where no gradient met a direction."""
    drawing = draw_figure("figure2", samples) if samples else None
    if drawing is None:
        return None
    count = sum(len(run.steps) for run in samples)
    caption = f"{drawing.caption} Of {count} lines of its steps, kept with the records."
    title = f"Figure 2, {drawing.title.lower()}"
    return replace(drawing, name=f"figure2-{preset}", title=title, caption=caption)
