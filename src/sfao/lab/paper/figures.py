"""Figures 1 and 2 of the paper from runs, and the paper's numbers beside ours in two plots."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sfao.lab.metrics import average_forgetting_released, spread
from sfao.lab.paper.archive import Archive
from sfao.lab.paper.results import AVERAGE, FilledTable, Row, share_of_data
from sfao.lab.paper.series import METHODS, THRESHOLDS, table_series
from sfao.lab.paper.tables import PSM_TABLE, implied_forgetting, paper_table
from sfao.lab.report.figures import forgetting_curves, update_geometry
from sfao.lab.report.runs import LoadedRun, RunGroup, group_runs, load_runs
from sfao.lab.report.style import INK, SMALL, STYLE, Drawing, as_pdf, as_picture, color_of, panels
from sfao.lab.run.errors import FolderError
from sfao.lab.run.files import write_atomically, write_text
from sfao.lab.run.record import Record

DRAW: dict[str, Callable[[RunGroup], Drawing | None]] = {"figure1": forgetting_curves, "figure2": update_geometry}
#: Marker sizes in points: the paper's ring is still visible around a dot of ours.
RING, DOT = 6.5, 3.5
#: The smallest range of an axis in percent, so that a difference of one point does not look large.
MIN_RANGE = 20.0
ACCURACY_TABLE = 10


# -- Figures 1 and 2 -----------------------------------------------------------------------------------------------


def write_figure(name: str, folders: Sequence[Path], file: Path) -> list[Path]:
    """Draw a figure of the paper from finished runs to `file` plus .svg, .pdf and .md; return the files.

    Nothing is written when the runs have nothing to show, such as no projected step for figure 2.
    """
    drawing = draw_figure(name, load_runs(folders))
    if drawing is None:
        return []
    picture, paper, text = (file.with_name(f"{file.name}.{ending}") for ending in ("svg", "pdf", "md"))
    write_text(picture, as_picture(drawing))
    write_atomically(paper, as_pdf(drawing))
    write_text(text, f"![{drawing.alt}]({picture.name})\n\n{drawing.caption}\n")
    return [picture, paper, text]


def draw_figure(name: str, runs: Sequence[LoadedRun]) -> Drawing | None:
    """Return a figure of the paper from these runs; None when they have nothing to show."""
    group, *others = group_runs(runs)
    if others:
        titles = "; ".join(other.group.title for other in (group, *others))
        raise FolderError(f"{name} must be of runs that may be compared, but these are of {titles}")
    drawing = DRAW[name](group)
    if drawing is None:
        return None
    seeds = ", ".join(f"{row.method} n = {row.done}" for row in group.group.rows)
    caption = f"{group.group.title}; {seeds}. {drawing.caption} {group.group.caveat}".strip()
    return replace(drawing, name=name, caption=caption)


# -- Average accuracy, paper and ours ------------------------------------------------------------------------------


@rc_context(STYLE)
def draw_averages(tables: Sequence[FilledTable]) -> Drawing | None:
    """Draw the average accuracy of every row of tables 1 to 7, one panel per table; None without results."""
    shown = [table for table in tables if table.paper.kind == "accuracy" and not table.is_empty]
    if not shown:
        return None
    figure, axes = panels(len(shown), columns=3, height=0.8 + 0.17 * len(METHODS), sharey=True)
    for ax, table in zip(axes, shown, strict=True):
        _draw_rows(ax, table.rows)
        ax.set_title(f"Table {table.paper.number}, {table.paper.stream}{' *' * table.is_partial}")
    axes[0].set_ylim(len(METHODS) - 0.4, -0.6)
    axes[0].set_yticks(range(len(METHODS)), list(METHODS))
    keys = [
        _key("paper", marker="o", markersize=RING, markerfacecolor="none", linestyle="none"),
        _key("ours, with standard deviation", marker="o", markersize=DOT, linewidth=1.4),
        _key("at the right: ours minus the paper's", linestyle="none"),
    ]
    figure.legend(handles=keys, loc="outside upper left", ncols=len(keys))
    figure.supxlabel("average accuracy after the last task, %")
    return Drawing(
        name="paper-and-ours",
        title="Average accuracy, paper and ours",
        caption="Rings: the paper. Dots: our mean. Every panel has its own scale. *: on a part of the data.",
        alt="The average accuracy of each method in tables 1 to 7, paper and ours; the tables have the numbers.",
        figure=figure,
    )


def _key(label: str, **look: Any) -> Line2D:
    return Line2D([], [], color=INK, label=label, **look)


def _draw_rows(ax: Axes, rows: Sequence[Row]) -> None:
    ends = []
    for row in rows:
        height, colour = list(METHODS).index(row.name), color_of(METHODS[row.name])
        cell = next(cell for cell in row.cells if cell.column == AVERAGE)
        if cell.paper is not None:
            ends.append(cell.paper.mean)
            ax.plot(cell.paper.mean, height, "o", markersize=RING, markerfacecolor="none", color=colour, zorder=3)
        if cell.ours is not None:
            mean, std = cell.ours.mean, cell.ours.std or 0.0
            ends += [mean - std, mean + std]
            ax.plot(mean, height, "o", markersize=DOT, color=colour, zorder=3)
            ax.hlines(height, mean - std, mean + std, colors=colour, linewidth=1.6, zorder=2)
        if cell.paper is not None and cell.ours is not None:
            ax.hlines(height, cell.paper.mean, cell.ours.mean, colors=colour, linewidth=0.7, alpha=0.6)
            place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
            ax.annotate(f"{cell.difference:+.1f}", (1.0, height), (2, 0), va="center", size=SMALL, **place)
    low, high = min(ends, default=0.0), max(ends, default=100.0)
    half = max(0.56 * (high - low), MIN_RANGE / 2)
    ax.set_xlim((low + high) / 2 - half, (low + high) / 2 + half)
    ax.locator_params(axis="x", nbins=5, integer=True)
    ax.grid(axis="x")


# -- The threshold ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Measure:
    """A number of SFAO at a threshold: the paper's, by stream and column, and that of a run."""

    printed: Callable[[str, str], float | None]
    of_run: Callable[[Record], float]


def _printed_accuracy(stream: str, column: str) -> float | None:
    number = paper_table(ACCURACY_TABLE).rows.get(stream, {}).get(column)
    return None if number is None else number.mean


MEASURES = {
    "average accuracy": _Measure(_printed_accuracy, lambda record: record.metrics["average_accuracy"]),
    "forgetting": _Measure(implied_forgetting, lambda record: average_forgetting_released(record.accuracy_matrix)),
}


@rc_context(STYLE)
def draw_thresholds(preset: str, archive: Archive) -> Drawing | None:
    """Draw SFAO at the thresholds of tables 10 and 11, one column of panels per stream; None without a run."""
    found = {stream: _find_sweep(preset, archive, stream) for stream in paper_table(PSM_TABLE).rows}
    swept = {stream: runs for stream, runs in found.items() if runs}
    if not swept:
        return None
    figure, axes = panels(2 * len(swept), columns=len(swept), height=1.75, sharex=True)
    for number, (name, measure) in enumerate(MEASURES.items()):
        row = axes[number * len(swept) : (number + 1) * len(swept)]
        row[0].set_ylabel(name)
        for ax, (stream, runs) in zip(row, swept.items(), strict=True):
            _draw_sweep(ax, measure, stream, runs)
            if number == 0:
                is_partial = any(share_of_data(record) < 1 for records in runs.values() for record in records)
                ax.set_title(f"{stream}{' *' * is_partial}")
    axes[0].set_xticks(list(THRESHOLDS.values()), [f"{value:.2f}".removeprefix("0") for value in THRESHOLDS.values()])
    keys = [_key("paper", marker="o", linestyle="--", markerfacecolor="none", markersize=4.5, linewidth=1.0)]
    keys.append(Line2D([], [], color=color_of("sfao"), marker="o", markersize=4.5, linewidth=1.0, label="ours"))
    figure.legend(handles=keys, loc="outside upper left", ncols=2)
    figure.supxlabel("accept above")
    return Drawing(
        name="thresholds",
        title="SFAO at different thresholds",
        caption=(
            "SFAO against the threshold above which it accepts: the mean over seeds, bars one standard deviation. "
            "Open: the paper's single runs. Forgetting is F as the released code computes it; the paper's follows "
            "from its PSM, (1 - F) / 2. Every panel has its own scale. *: on a part of the data."
        ),
        alt="Average accuracy and forgetting of SFAO at four thresholds, paper and ours; the tables have the numbers.",
        figure=figure,
    )


def _find_sweep(preset: str, archive: Archive, stream: str) -> dict[float, list[Record]]:
    """Return the runs that are done by threshold, without the thresholds that have none."""
    series = table_series(PSM_TABLE, preset)
    found = {value: archive.find(series[stream, column]) for column, value in THRESHOLDS.items()}
    done = {value: [one for one in records if one.status == "done"] for value, records in found.items()}
    return {value: records for value, records in done.items() if records}


def _draw_sweep(ax: Axes, measure: _Measure, stream: str, runs: Mapping[float, Sequence[Record]]) -> None:
    printed = {value: measure.printed(stream, column) for column, value in THRESHOLDS.items()}
    known = {value: number for value, number in printed.items() if number is not None}
    ax.plot(list(known), list(known.values()), "o--", color=INK, markerfacecolor="none", markersize=4.0, linewidth=0.9)
    ours = {value: spread([measure.of_run(record) for record in records]) for value, records in runs.items()}
    ax.errorbar(
        list(ours),
        [found.mean for found in ours.values()],
        yerr=[found.std or 0.0 for found in ours.values()],
        fmt="o-",
        color=color_of("sfao"),
        markersize=4.0,
        linewidth=0.9,
    )
    ax.margins(y=0.12)
    ax.locator_params(axis="y", nbins=5)
    ax.grid(axis="y")
