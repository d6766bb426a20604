"""Accuracy against its cost in memory and in time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sfao.experiment.statistics import spread
from sfao.reports.comparison import Row
from sfao.reports.comparison_columns import format_size
from sfao.reports.figures.drawing import Drawing
from sfao.reports.figures.labels import place_labels
from sfao.reports.figures.style import (
    INK,
    MUTED,
    SMALL,
    STYLE,
    and_more,
    method_colour,
    method_marker,
    panels,
    pick_evenly,
    shorten,
)
from sfao.reports.groups import RunGroup

MOST_POINTS = 20
#: Points whose names have more letters in all get numbers, and a key that tells whose they are.
MOST_LETTERS = 60
KEY_COLUMNS = 3


@dataclass(frozen=True)
class Point:
    row: str
    cost: float
    accuracy: float
    cost_std: float
    accuracy_std: float
    is_bound: bool


@dataclass(frozen=True)
class Scale:
    """The way to write a cost, and its round numbers, from fine to coarse."""

    in_words: Callable[[float], str]
    marks: Sequence[Sequence[float]]


@rc_context(STYLE)
def cost_accuracy(group: RunGroup) -> Drawing | None:
    """Draw accuracy against memory and time; None when there is only one method, and nothing to compare."""
    rows = [row for row in group.group.rows if row.done]
    if len(rows) < 2:
        return None
    shown = pick_evenly(rows, MOST_POINTS)
    memory = [_point(row, [float(run.record.memory_bytes) for run in group.done[row.method]]) for row in shown]
    time = [_point(row, [run.record.seconds for run in group.done[row.method]]) for row in shown]
    numbered = sum(len(row.method) for row in shown) > MOST_LETTERS
    labels = [str(place + 1) if numbered else shorten(row.method, 22) for place, row in enumerate(shown)]
    figure, (left, right) = panels(2, columns=2, height=3.0 + 0.16 * -(-len(shown) // KEY_COLUMNS) * numbered)
    if numbered:
        _key(figure, shown, labels)
    _draw(left, memory, BYTES, labels)
    _draw(right, time, TIME, labels)
    left.set(xlabel="bytes held", ylabel="average accuracy")
    right.set(xlabel="time of a run")
    fronts = [", ".join(point.row for point in pareto_front(points)) or "none" for points in (memory, time)]
    return Drawing(
        name=group.file_name("cost-accuracy"),
        title="What accuracy costs",
        caption=(
            f"Mean and standard deviation over seeds. The line, a Pareto front, joins what nothing else beats in both: "
            f"{fronts[0]} by bytes held for past tasks, {fronts[1]} by time of training and "
            f"evaluation on the machine of the runs.{_bound(shown)}{and_more(len(rows) - len(shown), 'method')}"
        ),
        alt="; ".join(
            f"{held.row}: accuracy {held.accuracy:.3f}, {format_size(held.cost)}, {_seconds(took.cost)}"
            for held, took in zip(memory, time, strict=True)
        )
        + ".",
        figure=figure,
    )


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """Return the points from cheap to expensive, each more accurate than all that cost no more, without the bound."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.accuracy)):
        if not point.is_bound and (not front or point.accuracy > front[-1].accuracy):
            front.append(point)
    return front


def _point(row: Row, costs: list[float]) -> Point:
    accuracy = row.accuracy
    if accuracy is None:
        raise ValueError(f"`{row.method}` must have runs that are done, got none")
    return Point(row.method, fmean(costs), accuracy.mean, spread(costs).std or 0.0, accuracy.std or 0.0, row.is_bound)


def _bound(rows: Sequence[Row]) -> str:
    return " Hollow: joint, which stores all data." if any(row.is_bound for row in rows) else ""


def _key(figure: Figure, rows: Sequence[Row], labels: Sequence[str]) -> None:
    handles = [
        Line2D([], [], color=method_colour(row.method), marker=method_marker(row.method), linestyle="none",
               markersize=5, markerfacecolor="none" if row.is_bound else method_colour(row.method),
               label=f"{label}  {shorten(row.method, 34)}")
        for label, row in zip(labels, rows, strict=True)
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower left", ncols=KEY_COLUMNS, frameon=False, fontsize=SMALL)


def _draw(ax: Axes, points: list[Point], scale: Scale, labels: Sequence[str]) -> None:
    positions = _cost_axis(ax, [point.cost for point in points], scale)
    at = dict(zip([point.row for point in points], positions, strict=True))
    front = pareto_front(points)
    if front:
        ax.plot(*zip(*_stairs(front, at), strict=True), color=MUTED, linewidth=1.0, zorder=1)
    for point in points:
        colour = method_colour(point.row)
        ax.errorbar(
            at[point.row], point.accuracy, yerr=point.accuracy_std, xerr=_clip_bar(point, at[point.row]),
            marker=method_marker(point.row), markersize=6, color=colour, elinewidth=0.9, linestyle="none",
            markerfacecolor="none" if point.is_bound else colour, zorder=3,
        )  # fmt: skip
    ax.margins(0.14)
    ax.grid(color=MUTED, alpha=0.2, linewidth=0.5)
    places = [(at[point.row], point.accuracy) for point in points]
    place_labels(ax, places, labels, INK, avoid=_stairs(front, at))


def _stairs(front: Sequence[Point], at: dict[str, float]) -> list[tuple[float, float]]:
    """The corners of the line that joins the front."""
    corners: list[tuple[float, float]] = []
    for point in front:
        if corners:
            corners.append((at[point.row], corners[-1][1]))
        corners.append((at[point.row], point.accuracy))
    return corners


def _clip_bar(point: Point, position: float) -> float:
    """Return a bar that does not reach zero, which a logarithmic axis does not have."""
    return min(point.cost_std, 0.9 * position) if point.cost else 0.0


def _cost_axis(ax: Axes, costs: list[float], scale: Scale) -> list[float]:
    """Place the costs on the axis: in proportion, or by their logarithm when they differ much.

    Zero has no logarithm, and gets a place of its own a decade before the smallest other cost.
    """
    positive = [cost for cost in costs if cost > 0]
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: scale.in_words(value)))
    if not positive or max(positive) <= 4 * min(costs):
        ax.locator_params(axis="x", nbins=4)
        return costs
    zero = min(positive) / 10
    marks = _marks(scale, min(positive), max(positive))
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    if len(positive) < len(costs):
        marks = [zero, *marks]
        ax.axvline(zero * 2.2, color=MUTED, linewidth=0.6, linestyle=":")
    ax.xaxis.set_major_locator(FixedLocator(marks))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: scale.in_words(0.0 if value == zero else value)))
    return [cost or zero for cost in costs]


def _marks(scale: Scale, low: float, high: float) -> list[float]:
    """The finest round numbers about what is shown that do not crowd the axis."""
    near = [[mark for mark in marks if low / 2 <= mark <= high * 2] for marks in scale.marks]
    return next((marks for marks in near if len(marks) <= 7), near[-1])


def _seconds(count: float) -> str:
    if count < 60:
        return f"{count:.2g} s" if count < 10 else f"{count:.0f} s"
    return f"{count / 60:.0f} min" if count < 3600 else f"{count / 3600:.3g} h"


def _decades(*digits: int, every: int = 1) -> list[float]:
    return [digit * 10.0**decade for decade in range(0, 13, every) for digit in digits]


BYTES = Scale(
    lambda count: format_size(count).replace(".0 ", " "), [_decades(1, 2, 5), _decades(1), _decades(1, every=3)]
)
_CLOCK = [count * unit for unit in (1.0, 60.0) for count in (1, 2, 5, 10, 20)]
_DAYS = [3600.0 * count for count in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
TIME = Scale(_seconds, [[0.1, 0.2, 0.5, *_CLOCK, *_DAYS], [0.1, *_CLOCK[::3], *_DAYS[::3]]])
