"""The effect of a threshold, in a paper and in our runs: one panel for every benchmark and measure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sfao.lab.report.figures.drawing import Drawing
from sfao.lab.report.figures.style import INK, MUTED, SMALL, STYLE, panels, shorten

Line = Literal["-", "--", ":", "-."]


@dataclass(frozen=True)
class Measurement:
    """The mean over runs at a threshold, and their standard deviation where there is one."""

    threshold: float
    mean: float
    std: float | None = None


@dataclass(frozen=True)
class _Look:
    """Mark, line and colour of a series differ together."""

    marker: str
    line: Line
    colour: str
    fill: str

    def key(self, label: str) -> Line2D:
        return Line2D([], [], color=self.colour, marker=self.marker, linestyle=self.line, label=label,
                      markerfacecolor=self.fill, markersize=4.5, linewidth=1.0)  # fmt: skip


#: {benchmark: {series: its points}}
Panels = Mapping[str, Mapping[str, Sequence[Measurement]]]

#: The first is hollow: what was reported.
_LOOKS = (
    _Look("o", "--", INK, "none"),
    _Look("o", "-", "#d55e00", "#d55e00"),
    _Look("s", ":", "#2f86c8", "#2f86c8"),
    _Look("^", "-.", "#009e73", "#009e73"),
)
#: By how much neighbouring series stand apart, as a share of the distance of two thresholds: bars must not cover bars.
_APART = 0.1


@rc_context(STYLE)
def threshold_sweep(
    measures: Mapping[str, Panels],
    series: Sequence[str],
    *,
    name: str = "threshold-sweep",
    title: str = "What the threshold does",
    threshold: str = "accept above",
    caption: str = "",
) -> Drawing:
    """Draw one row of panels per measure, one column per benchmark, with error bars where there is a deviation.

    The first of the series is what was reported, the others what was measured; a panel has those that it has points of.
    """
    if not 2 <= len(series) <= len(_LOOKS):
        raise ValueError(f"`series` must be 2 to {len(_LOOKS)}, what was reported the first of them, got {len(series)}")
    looks = dict(zip(series, _LOOKS, strict=False))
    benchmarks = list(dict.fromkeys(benchmark for own in measures.values() for benchmark in own))
    count = len(measures) * len(benchmarks)
    figure, axes = panels(count, columns=len(benchmarks), height=1.75, share_x=True, share_y=False)
    step = _APART * _gap(_thresholds(measures))
    for number, (measure, own) in enumerate(measures.items()):
        row = axes[number * len(benchmarks) : (number + 1) * len(benchmarks)]
        row[0].set_ylabel(measure)
        for ax, benchmark in zip(row, benchmarks, strict=True):
            _draw(ax, own.get(benchmark, {}), looks, step)
            if number == 0:
                ax.set_title(shorten(benchmark))
    _mark_thresholds(axes, measures)
    handles = [look.key(label) for label, look in looks.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False, fontsize=SMALL)
    figure.supxlabel(threshold)
    return Drawing(name, title, caption, _describe(measures, threshold), figure)


def _draw(ax: Axes, own: Mapping[str, Sequence[Measurement]], looks: Mapping[str, _Look], step: float) -> None:
    for number, (label, look) in enumerate(looks.items()):
        points = sorted(own.get(label, ()), key=lambda point: point.threshold)
        if points:
            ax.errorbar(
                [point.threshold + step * (number - (len(looks) - 1) / 2) for point in points],
                [point.mean for point in points],
                yerr=[point.std or 0.0 for point in points],
                marker=look.marker, linestyle=look.line, color=look.colour, markerfacecolor=look.fill,
                markersize=4.0, linewidth=0.9, elinewidth=0.9, label=label,
            )  # fmt: skip
    ax.margins(y=0.12)
    ax.locator_params(axis="y", nbins=5)
    ax.grid(axis="y", color=MUTED, alpha=0.25, linewidth=0.5)


def _mark_thresholds(axes: Sequence[Axes], measures: Mapping[str, Panels]) -> None:
    """Mark the thresholds of all panels, which share this axis."""
    shown = _thresholds(measures)
    gap = _gap(shown)
    digits = max(len(f"{value:g}".partition(".")[2]) for value in shown)
    axes[0].set_xlim(shown[0] - 0.5 * gap, shown[-1] + 0.5 * gap)
    axes[0].set_xticks(shown, [f"{value:.{digits}f}".removeprefix("0") for value in shown])


def _thresholds(measures: Mapping[str, Panels]) -> list[float]:
    known = [points for panels_of in measures.values() for own in panels_of.values() for points in own.values()]
    return sorted({point.threshold for points in known for point in points})


def _gap(thresholds: Sequence[float]) -> float:
    """Return the smallest distance of two thresholds."""
    return min((after - before for before, after in pairwise(thresholds)), default=0.05)


def _describe(measures: Mapping[str, Panels], threshold: str) -> str:
    shown = _thresholds(measures)
    lines = [
        f"{benchmark}, {measure}: "
        + ", ".join(f"{label} {_describe_series(points, shown)}" for label, points in own.items() if points)
        for measure, panels_of in measures.items()
        for benchmark, own in panels_of.items()
    ]
    return f"Where the threshold ({threshold}) is {', '.join(f'{at:g}' for at in shown)}. {'; '.join(lines)}."


def _describe_series(points: Sequence[Measurement], thresholds: Sequence[float]) -> str:
    means = {point.threshold: f"{point.mean:.3f}" for point in points}
    return " ".join(means.get(threshold, "none") for threshold in thresholds)
