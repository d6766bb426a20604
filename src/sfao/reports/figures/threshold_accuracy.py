"""Accuracy against a threshold: what a paper reports and what was measured here, in one figure."""

from collections.abc import Sequence
from typing import Literal

from matplotlib import rc_context
from matplotlib.lines import Line2D

from sfao.reports.figures.drawing import Drawing
from sfao.reports.figures.style import INK, MUTED, SMALL, STYLE, panels

#: (label of the series, threshold, mean accuracy, standard deviation where there is one)
Measured = tuple[str, float, float, float | None]

Line = Literal["-", "--", ":", "-."]
#: A series each: mark, line and colour differ together.
_LOOKS: tuple[tuple[str, Line, str], ...] = (
    ("o", "-", "#d55e00"),
    ("s", "--", "#0068b0"),
    ("^", ":", "#009e73"),
    ("D", "-.", "#7a5fc0"),
)


@rc_context(STYLE)
def threshold_accuracy(
    points: Sequence[Measured],
    *,
    name: str = "threshold-accuracy",
    title: str = "Accuracy against threshold",
    threshold: str = "accept above",
    caption: str = "",
) -> Drawing:
    """One line a series, with error bars where a standard deviation is given."""
    series: dict[str, list[Measured]] = {}
    for point in points:
        series.setdefault(point[0], []).append(point)
    if not 1 <= len(series) <= len(_LOOKS):
        raise ValueError(f"`points` must be of 1 to {len(_LOOKS)} series, got {len(series)}")
    figure, (ax,) = panels(1, columns=1, height=3.0)
    for (label, own), (marker, line, colour) in zip(series.items(), _LOOKS, strict=False):
        own = sorted(own, key=lambda point: point[1])
        ax.errorbar(
            [point[1] for point in own],
            [point[2] for point in own],
            yerr=[point[3] or 0.0 for point in own],
            marker=marker, linestyle=line, color=colour, markersize=4.5, linewidth=1.2, elinewidth=0.9, capsize=2,
            label=label,
        )  # fmt: skip
    handles = [
        Line2D([], [], marker=marker, linestyle=line, color=colour, markersize=4.5, linewidth=1.2, label=label)
        for label, (marker, line, colour) in zip(series, _LOOKS, strict=False)
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False, fontsize=SMALL)
    ax.set(xlabel=threshold, ylabel="average accuracy")
    ax.set_xticks(sorted({point[1] for point in points}))
    ax.xaxis.label.set_color(INK)
    ax.margins(x=0.05, y=0.12)
    ax.grid(axis="y", color=MUTED, alpha=0.25, linewidth=0.5)
    return Drawing(name, title, caption, _told(series, threshold), figure)


def _told(series: dict[str, list[Measured]], threshold: str) -> str:
    lines = [
        f"{label}: " + ", ".join(f"{mean:.3f} at {at:g}" for _, at, mean, _ in own) for label, own in series.items()
    ]
    return f"Accuracy by threshold ({threshold}). " + "; ".join(lines) + "."
