"""Figures that show the numbers of a paper beside those of our runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from sfao.lab.report.style import INK, MUTED, ON_DARK, ON_LIGHT, RAMP, SMALL, STYLE, Drawing, color_of, panels, shorten

AGREEMENT_COLORS = LinearSegmentedColormap.from_list("agreement", RAMP)
#: In cells that cannot be judged: runs without a spread, and no runs.
UNJUDGED, NOT_RUN = "?", "-"
#: Marker, line, color and fill of series; the first is hollow: what the paper reports.
SERIES_STYLES: tuple[dict[str, Any], ...] = (
    {"marker": "o", "linestyle": "--", "color": INK, "markerfacecolor": "none"},
    {"marker": "o", "linestyle": "-", "color": "#d55e00"},
    {"marker": "s", "linestyle": ":", "color": "#2f86c8"},
    {"marker": "^", "linestyle": "-.", "color": "#009e73"},
)


@dataclass(frozen=True)
class Pair:
    """A method's number in percent, in the paper and ours; either may be missing."""

    #: The paper's name for it, and ours.
    row: str
    method: str
    paper: float | None
    ours: float | None
    std: float | None = None


@rc_context(STYLE)
def paper_and_ours(
    tables: Mapping[str, Sequence[Pair]], *, name: str, title: str, axis: str, caption: str = ""
) -> Drawing:
    """Draw one panel per table, with the difference of every row at its right edge."""
    rows = list(dict.fromkeys(pair.row for pairs in tables.values() for pair in pairs))
    figure, axes = panels(len(tables), columns=3, height=0.8 + 0.17 * len(rows), sharey=True)
    for ax, (heading, pairs) in zip(axes, tables.items(), strict=True):
        _draw_pairs(ax, {rows.index(pair.row): pair for pair in pairs})
        ax.set_title(shorten(heading, 38))
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    axes[0].set_yticks(range(len(rows)), rows)
    ring = Line2D(
        [], [], color=INK, marker="o", markersize=6.5, markerfacecolor="none", linestyle="none", label="paper"
    )
    dot = Line2D([], [], color=INK, marker="o", markersize=3.5, linewidth=1.4, label="ours, with spread")
    beside = Line2D([], [], linestyle="none", label="at the right: ours minus the paper's")
    figure.legend(handles=[ring, dot, beside], loc="outside upper left", ncols=3)
    figure.supxlabel(axis)
    told = (f"{heading}: {', '.join(map(_describe_pair, pairs))}" for heading, pairs in tables.items())
    return Drawing(name, title, caption, f"Paper and ours, {axis}. {'; '.join(told)}.", figure)


def _draw_pairs(ax: Axes, at: Mapping[int, Pair]) -> None:
    """Draw with one artist per kind of mark: a picture of many tables must stay small."""
    theirs = {height: pair.paper for height, pair in at.items() if pair.paper is not None}
    ours = {height: pair.ours for height, pair in at.items() if pair.ours is not None}
    stds = {height: at[height].std or 0.0 for height in ours}
    both = [height for height in theirs if height in ours]

    def lines(heights: list[int], starts: list[float], ends: list[float], width: float) -> None:
        ax.hlines(heights, starts, ends, colors=[color_of(at[height].method) for height in heights], linewidth=width)

    lines(both, [theirs[height] for height in both], [ours[height] for height in both], 0.7)
    lines(list(ours), [ours[h] - stds[h] for h in ours], [ours[h] + stds[h] for h in ours], 1.6)
    for values, size, is_filled in ((theirs, 6.5, False), (ours, 3.5, True)):
        colors = [color_of(at[height].method) for height in values]
        fill = colors if is_filled else "none"
        ax.scatter(list(values.values()), list(values), s=size**2, edgecolors=colors, facecolors=fill, zorder=3)
    for height in both:
        text = f"{ours[height] - theirs[height]:+.1f}"
        ax.annotate(text, (1.0, height), (2, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                    va="center", size=SMALL)  # fmt: skip
    ends = [*theirs.values(), *(ours[h] - stds[h] for h in ours), *(ours[h] + stds[h] for h in ours)] or [0.0, 100.0]
    # At least 20 points wide: a small difference must not look large.
    middle, half = (min(ends) + max(ends)) / 2, max(0.56 * (max(ends) - min(ends)), 10.0)
    ax.set_xlim(middle - half, middle + half)
    ax.locator_params(axis="x", nbins=5, integer=True)
    ax.grid(axis="x")


def _describe_pair(pair: Pair) -> str:
    paper, ours = ("none" if value is None else f"{value:.1f}" for value in (pair.paper, pair.ours))
    return f"{pair.row} {paper} and {ours}" + (f" ± {pair.std:.1f}" if pair.std is not None else "")


@dataclass(frozen=True)
class Count:
    """How many of the numbers that can be judged agree, and of how many there are runs."""

    agree: int
    judged: int
    filled: int
    #: Ends the text of the cell, such as a mark that the caption explains.
    mark: str = ""

    @property
    def text(self) -> str:
        if self.judged:
            return f"{self.agree}/{self.judged}{self.mark}"
        return UNJUDGED + self.mark if self.filled else NOT_RUN

    @property
    def words(self) -> str:
        if self.judged:
            return f"{self.agree} of {self.judged}"
        return "without a spread" if self.filled else "not run"


@rc_context(STYLE)
def agreement_matrix(
    matrices: Mapping[str, Mapping[str, Mapping[str, Count]]],
    columns: Sequence[str],
    *,
    name: str,
    title: str,
    caption: str,
) -> Drawing:
    """Draw {panel: {row: {column: count}}}, all panels with the same rows; light is no agreement, dark all."""
    rows = list(dict.fromkeys(row for matrix in matrices.values() for row in matrix))
    figure, axes = panels(len(matrices), columns=2, height=0.19 * len(rows) + 0.5, sharey=True)
    for ax, (heading, matrix) in zip(axes, matrices.items(), strict=True):
        for row, cells in matrix.items():
            for column, count in cells.items():
                _draw_count(ax, columns.index(column), rows.index(row), count)
        ax.set_title(heading)
        ax.set_xlim(0, len(columns))
        ax.set_xticks([place + 0.5 for place in range(len(columns))], columns)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    axes[0].set_ylim(len(rows), 0)
    axes[0].set_yticks([place + 0.5 for place in range(len(rows))], rows)
    told = (
        f"{heading}: "
        + "; ".join(
            f"{row}: {', '.join(f'{column} {count.words}' for column, count in cells.items())}"
            for row, cells in matrix.items()
        )
        for heading, matrix in matrices.items()
    )
    return Drawing(name, title, caption, ". ".join(told) + ".", figure)


def _draw_count(ax: Axes, across: int, down: int, count: Count) -> None:
    color = MUTED
    if count.judged:
        share = count.agree / count.judged
        color = ON_DARK if share > 0.55 else ON_LIGHT
        ax.add_patch(Rectangle((across + 0.03, down + 0.05), 0.94, 0.9, facecolor=AGREEMENT_COLORS(share)))
    ax.text(across + 0.5, down + 0.52, count.text, ha="center", va="center", color=color, size=SMALL)


@dataclass(frozen=True)
class Measurement:
    """The mean over runs at a threshold, and their standard deviation where there is one."""

    threshold: float
    mean: float
    std: float | None = None


@rc_context(STYLE)
def threshold_sweep(
    measures: Mapping[str, Mapping[str, Mapping[str, Sequence[Measurement]]]],
    series: Sequence[str],
    *,
    name: str = "threshold-sweep",
    title: str = "Effect of the threshold",
    threshold: str = "accept above",
    caption: str = "",
) -> Drawing:
    """Draw {measure: {benchmark: {series: points}}}: a row of panels per measure, a column per benchmark.

    The first of the series, at most four, is what was reported, the others what was measured.
    """
    benchmarks = list(dict.fromkeys(benchmark for own in measures.values() for benchmark in own))
    thresholds = sorted(
        {p.threshold for own in measures.values() for one in own.values() for points in one.values() for p in points}
    )
    gap = min((after - before for before, after in pairwise(thresholds)), default=0.05)
    figure, axes = panels(len(measures) * len(benchmarks), columns=len(benchmarks), height=1.75, sharex=True)
    told = []
    for number, (ax, (measure, benchmark)) in enumerate(
        zip(axes, [(measure, benchmark) for measure in measures for benchmark in benchmarks], strict=True)
    ):
        own = measures[measure].get(benchmark, {})
        for place, (label, style) in enumerate(zip(series, SERIES_STYLES, strict=False)):
            points = sorted(own.get(label, ()), key=lambda point: point.threshold)
            shift = 0.1 * gap * (place - (len(series) - 1) / 2)  # bars must not cover bars
            if points:
                ax.errorbar(
                    [point.threshold + shift for point in points], [point.mean for point in points],
                    yerr=[point.std or 0.0 for point in points], markersize=4.0, linewidth=0.9, label=label, **style,
                )  # fmt: skip
        ax.margins(y=0.12)
        ax.locator_params(axis="y", nbins=5)
        ax.grid(axis="y")
        ax.set_title(shorten(benchmark) if number < len(benchmarks) else "")
        ax.set_ylabel(measure if number % len(benchmarks) == 0 else "")
        told.append(f"{benchmark}, {measure}: " + ", ".join(_describe_series(own, series, thresholds)))
    axes[0].set_xlim(thresholds[0] - 0.5 * gap, thresholds[-1] + 0.5 * gap)
    axes[0].set_xticks(thresholds, [f"{value:.2f}".removeprefix("0") for value in thresholds])
    keys = [
        Line2D([], [], label=label, markersize=4.5, **style)
        for label, style in zip(series, SERIES_STYLES, strict=False)
    ]
    figure.legend(handles=keys, loc="outside upper left", ncols=len(keys))
    figure.supxlabel(threshold)
    listed = ", ".join(f"{value:g}" for value in thresholds)
    return Drawing(name, title, caption, f"Where the threshold ({threshold}) is {listed}. {'; '.join(told)}.", figure)


def _describe_series(
    own: Mapping[str, Sequence[Measurement]], series: Sequence[str], thresholds: Sequence[float]
) -> list[str]:
    """Return `ours none 0.650 none` for each series with points."""
    found = {label: {point.threshold: f"{point.mean:.3f}" for point in own.get(label, ())} for label in series}
    return [f"{label} {' '.join(m.get(at, 'none') for at in thresholds)}" for label, m in found.items() if m]
