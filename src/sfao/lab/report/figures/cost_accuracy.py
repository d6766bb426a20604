"""Accuracy against its cost in memory and in time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log10
from statistics import fmean

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sfao.lab.console import escape_controls
from sfao.lab.report.comparison import Row
from sfao.lab.report.comparison_table import format_size
from sfao.lab.report.figures.drawing import OVER_SEEDS, OVER_SEEDS_TAG, Drawing, Mark, Panel
from sfao.lab.report.figures.labels import Line, place_labels
from sfao.lab.report.figures.style import (
    INK,
    MUTED,
    SMALL,
    STYLE,
    and_more,
    method_colour,
    method_marker,
    panels,
    pick_with,
    shorten,
)
from sfao.lab.report.groups import RunGroup
from sfao.lab.report.runs import LoadedRun
from sfao.lab.run.statistics import spread

MOST_POINTS = 20
#: Single runs are drawn where they are no more than this.
MOST_DOTS = 120
#: Points that an axis is wide, that a letter needs, and that are left between two numbers.
AXIS_WIDTH, LETTER, BETWEEN = 190.0, 4.2, 6.0
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
    stores_data: bool
    #: (seed, cost, accuracy) of every run that is done.
    runs: tuple[tuple[int, float, float], ...] = ()


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
    memory = [_point(row, group.done[row.method], lambda run: float(run.record.memory_bytes)) for row in rows]
    time = [_point(row, group.done[row.method], lambda run: run.record.seconds) for row in rows]
    best = {point.row for points in (memory, time) for point in pareto_front(points)}
    shown = pick_with([row for row in rows if row.method in best], rows, MOST_POINTS)
    memory, time = ([points[rows.index(row)] for row in shown] for points in (memory, time))
    numbered = sum(len(row.method) for row in shown) > MOST_LETTERS
    labels = [str(place + 1) if numbered else shorten(row.method, 22) for place, row in enumerate(shown)]
    height = 3.0 + 0.16 * -(-len(shown) // KEY_COLUMNS) * numbered
    figure, (left, right) = panels(2, columns=2, height=height, apart=True)
    if numbered:
        _key(figure, shown, labels)
    drawn = [_draw(left, memory, BYTES, labels, "memory"), _draw(right, time, TIME, labels, "seconds")]
    left.set(xlabel="bytes held", ylabel="average accuracy")
    right.set(xlabel="time of a run", ylabel="average accuracy")
    fronts = [
        ", ".join(shorten(point.row, 34) for point in pareto_front(points)) or "none" for points in (memory, time)
    ]
    return Drawing(
        name=group.file_name("cost-accuracy"),
        title="What accuracy costs",
        caption=(
            f"{_describe_points(memory)}. The line, a Pareto front, joins what nothing else "
            f"beats in both: {fronts[0]} by bytes held for past tasks, {fronts[1]} by time of training and "
            f"evaluation on the machine of the runs.{_bound(shown)}{and_more(len(rows) - len(shown), 'method')}"
        ),
        alt="; ".join(
            f"{held.row}: accuracy {held.accuracy:.3f}, {format_size(held.cost)}, {_seconds(took.cost)}"
            for held, took in zip(memory, time, strict=True)
        )
        + ".",
        figure=figure,
        panels=drawn,
        tags={OVER_SEEDS: OVER_SEEDS_TAG}
        | {_gid(number): {"data-row": point.row, **OVER_SEEDS_TAG} for number, point in enumerate(memory)}
        | {
            _gid(number, seed): {"data-row": point.row, "data-seed": str(seed)}
            for number, point in enumerate(memory)
            for seed, _, _ in point.runs
        },
        redraw={
            "kind": "cost",
            "rows": [
                {"name": escape_controls(row.method), "label": label, "colour": method_colour(row.method)}
                | {"isOnFront": not row.stores_data}
                for label, row in zip(labels, shown, strict=True)
            ],
            "letters": SMALL,
        },
    )


def _gid(number: int, seed: int | None = None) -> str:
    """Return the id of what is drawn of a point, or of one run of it."""
    return f"of-{number}" if seed is None else f"of-{number}-{seed}"


def _has_dots(points: Sequence[Point]) -> bool:
    counts = [len(point.runs) for point in points]
    return max(counts) > 1 and sum(counts) <= MOST_DOTS


def _describe_points(points: Sequence[Point]) -> str:
    if all(len(point.runs) == 1 for point in points):
        return "One run each"
    return "Mean and standard deviation over seeds" + "; dots are single runs" * _has_dots(points)


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """Return the points that store no data from cheap to expensive, each better than all that cost no more."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.accuracy)):
        if not point.stores_data and (not front or point.accuracy > front[-1].accuracy):
            front.append(point)
    return front


def _point(row: Row, runs: Sequence[LoadedRun], measure: Callable[[LoadedRun], float]) -> Point:
    accuracy, costs = row.accuracy, [measure(run) for run in runs]
    if accuracy is None:
        raise ValueError(f"`{row.method}` must have runs that are done, got none")
    single = tuple((run.record.seed, measure(run), run.record.metrics["average_accuracy"]) for run in runs)
    deviation = spread(costs).std or 0.0
    return Point(row.method, fmean(costs), accuracy.mean, deviation, accuracy.std or 0.0, row.stores_data, single)


def _bound(rows: Sequence[Row]) -> str:
    storing = [shorten(row.method, 34) for row in rows if row.stores_data]
    return f" Hollow, and not on the line: what stores data ({', '.join(storing)})." if storing else ""


def _key(figure: Figure, rows: Sequence[Row], labels: Sequence[str]) -> None:
    handles = [
        Line2D([], [], color=method_colour(row.method), marker=method_marker(row.method), linestyle="none",
               markersize=5, markerfacecolor="none" if row.stores_data else method_colour(row.method),
               label=f"{label}  {shorten(row.method, 34)}")
        for label, row in zip(labels, rows, strict=True)
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower left", ncols=KEY_COLUMNS, frameon=False, fontsize=SMALL)


def _draw(ax: Axes, points: list[Point], scale: Scale, labels: Sequence[str], measure: str) -> Panel:
    place = _cost_axis(ax, [point.cost for point in points], scale)
    # The mean of any seeds lies among their runs: a page draws it in the same frame.
    ax.update_datalim([(place(cost), accuracy) for point in points for _, cost, accuracy in point.runs])
    at = {point.row: place(point.cost) for point in points}
    front = pareto_front(points)
    if front:
        ax.plot(*zip(*_stairs(front, at), strict=True), color=MUTED, linewidth=1.0, zorder=1, gid=OVER_SEEDS)
    dots = [(number, run) for number, point in enumerate(points) for run in point.runs] if _has_dots(points) else []
    for number, (seed, cost, accuracy) in dots:
        colour = method_colour(points[number].row)
        ax.plot(place(cost), accuracy, ".", color=colour, markersize=3, alpha=0.6, gid=_gid(number, seed), zorder=2)
    bars: list[Line] = []
    for number, point in enumerate(points):
        colour = method_colour(point.row)
        across, up = _clip_bar(point, at[point.row]), point.accuracy_std
        drawn = ax.errorbar(
            at[point.row], point.accuracy, yerr=up, xerr=across,
            marker=method_marker(point.row), markersize=6, color=colour, elinewidth=0.9, linestyle="none",
            markerfacecolor="none" if point.stores_data else colour, zorder=3,
        )  # fmt: skip
        for artist in drawn.get_children():
            artist.set_gid(_gid(number))
        x, y = at[point.row], point.accuracy
        bars += [((x - across, y), (x + across, y)), ((x, y - up), (x, y + up))]
    ax.margins(0.14)
    ax.grid(color=MUTED, alpha=0.2, linewidth=0.5)
    places = [(at[point.row], point.accuracy) for point in points]
    gids = [_gid(number) for number in range(len(points))]
    lines = [*pairwise(_stairs(front, at)), *bars, *(((place(c), a), (place(c), a)) for _, (_, c, a) in dots)]
    place_labels(ax, places, labels, INK, avoid=lines, gids=gids)
    marks = [_mark(point, at[point.row], scale) for point in points]
    marks += [_mark_run(points[number].row, run, place, scale) for number, run in dots]
    return Panel(ax, marks=marks, redraw={"measure": measure, "zero": place(0.0)})


def _mark(point: Point, x: float, scale: Scale) -> Mark:
    seeds = f" ± {point.accuracy_std:.3f} over {len(point.runs)} seeds" if len(point.runs) > 1 else ""
    text = f"{point.row}: accuracy {point.accuracy:.3f}{seeds}, {scale.in_words(point.cost)}"
    return Mark(x, point.accuracy, text, row=point.row)


def _mark_run(row: str, run: tuple[int, float, float], place: Callable[[float], float], scale: Scale) -> Mark:
    seed, cost, accuracy = run
    text = f"{row}, seed {seed}: accuracy {accuracy:.3f}, {scale.in_words(cost)}"
    return Mark(place(cost), accuracy, text, row=row, seed=seed)


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


def _cost_axis(ax: Axes, costs: list[float], scale: Scale) -> Callable[[float], float]:
    """Set up the axis, in proportion, or by logarithms when costs differ much; return where it has a cost.

    Zero has no logarithm, and gets a place of its own a decade before the smallest other cost.
    """
    positive = [cost for cost in costs if cost > 0]
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: scale.in_words(value)))
    if not positive or max(positive) <= 4 * min(costs):
        ax.locator_params(axis="x", nbins=4)
        return float
    zero = min(positive) / 10
    marks = _marks(scale, min(positive), max(positive), len(positive) < len(costs))
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    if len(positive) < len(costs):
        marks = [zero, *marks]
        ax.axvline(zero * 2.2, color=MUTED, linewidth=0.6, linestyle=":")
    ax.xaxis.set_major_locator(FixedLocator(marks))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: scale.in_words(0.0 if value == zero else value)))
    return lambda cost: cost or zero


def _marks(scale: Scale, low: float, high: float, has_zero: bool) -> list[float]:
    """Return the finest round numbers about what is shown that do not run into each other."""
    near = [[mark for mark in marks if low / 1.5 <= mark <= high * 1.5] for marks in scale.marks]
    decade = AXIS_WIDTH / (1.28 * (log10(high / low) + has_zero) + 0.1)  # with the margins
    spaced = [_keep_apart(marks, scale, decade) for marks in near]
    whole = (marks for marks, kept in zip(near, spaced, strict=True) if marks == kept and len(marks) > 1)
    return next(whole, spaced[0])


def _keep_apart(marks: Sequence[float], scale: Scale, decade: float) -> list[float]:
    """Return the numbers that fit side by side where a decade is so many points wide."""
    kept: list[float] = []
    for mark in marks:
        letters = sum(len(scale.in_words(one)) for one in (*kept[-1:], mark))
        if not kept or decade * log10(mark / kept[-1]) >= LETTER * letters / 2 + BETWEEN:
            kept.append(mark)
    return kept


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
