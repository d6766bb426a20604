"""The fall of the accuracy of each task while later ones are learnt: one panel per method."""

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from sfao.lab.report.comparison import list_best
from sfao.lab.report.figures.accuracy_matrices import tell_accuracy
from sfao.lab.report.figures.drawing import OVER_SEEDS, Drawing, Mark, Panel
from sfao.lab.report.figures.style import (
    MUTED,
    SMALL,
    STYLE,
    and_more,
    columns_for,
    method_colour,
    most_panels,
    panels,
    pick_evenly,
    pick_with,
    shorten,
)
from sfao.lab.report.groups import RunGroup
from sfao.lab.report.runs import LoadedRun

#: Above this many, lines are thin, and only the first, the last and some between carry their number.
MOST_NUMBERS = 10
#: From the first task to the last: blue to ochre, which all colour-blind readers see, without the ends that vanish on
#: white or on black.
TASK_COLOURS = LinearSegmentedColormap.from_list("tasks", ("#2c6fbb", "#6b8fa3", "#a59a6a", "#d0a020"))


@rc_context(STYLE)
def forgetting_curves(group: RunGroup) -> Drawing | None:
    """Draw one panel per method; None for streams of a single task, where nothing can be forgotten."""
    rows = {row: runs for row, runs in group.done.items() if len(runs[0].record.accuracy_matrix) > 1}
    if not rows:
        return None
    tasks = len(next(iter(rows.values()))[0].record.accuracy_matrix)
    shown = pick_with(list_best(group.group), list(rows), most_panels(tasks))
    figure, axes = panels(len(shown), columns=columns_for(len(shown), tasks), height=1.9, share_x=True, apart=True)
    lowest = min(float(np.nanmin(accuracies(rows[row]))) for row in shown)
    bottom, top = max(lowest - 0.05, -0.02), 1.03
    gap = 0.085 * (top - bottom)
    for row, ax in zip(shown, axes, strict=True):
        _draw(ax, accuracies(rows[row]), method_colour(row), gap)
        ax.set_ylim(bottom, top)
        ax.set_title(shorten(row))
    figure.supxlabel("after task")
    figure.supylabel("accuracy")
    several = any(len(runs) > 1 for runs in rows.values())
    band = " with the standard deviation over seeds as a band" if several else ""
    numbers = {row.method: row for row in group.group.rows}
    return Drawing(
        name=group.file_name("forgetting"),
        title="What is left of each task",
        caption=(
            f"A thin line is one task, from when it was learnt to the end, numbered there, blue the first to ochre the "
            f"last: the mean{band}. The broad, pale line is the mean over the tasks learnt so far."
            f"{and_more(len(rows) - len(shown), 'method')}"
        ),
        alt="Average forgetting: "
        + "; ".join(f"{row} {spread.mean:.3f}" for row in shown if (spread := numbers[row].forgetting))
        + ".",
        figure=figure,
        panels=[
            Panel(ax, row, marks=_mark(accuracies(rows[row])), redraw={"colour": method_colour(row)})
            for row, ax in zip(shown, axes, strict=True)
        ],
        axes="across: after task; up: accuracy",
        redraw={
            "kind": "curves",
            "shades": [shade_of(task, tasks) for task in range(tasks)],
            "isDense": tasks > MOST_NUMBERS,
            "numbered": pick_evenly(range(tasks), MOST_NUMBERS),
            "gap": gap,
            "letters": SMALL,
        },
    )


def _mark(found: NDArray[np.float64]) -> list[Mark]:
    means, stds = found.mean(axis=0), found.std(axis=0, ddof=1) if len(found) > 1 else None
    return [
        Mark(after + 1, mean, tell_accuracy(task, after, mean, None if stds is None else stds[after, task]))
        for (after, task), mean in np.ndenumerate(means)
        if task <= after
    ]


def accuracies(runs: list[LoadedRun]) -> NDArray[np.float64]:
    """Return [seed, after task, task]; not a number before the task was learnt."""
    found = np.array([run.record.accuracy_matrix for run in runs], dtype=float)
    after, task = np.indices(found.shape[1:])
    found[:, after < task] = np.nan
    return found


def spread_out(heights: dict[int, float], gap: float) -> dict[int, float]:
    """Move heights apart to at least the gap, in their order and no farther than needed."""
    order = sorted(heights, key=lambda name: heights[name])
    room = gap * np.arange(len(order))
    # Least squares under h1 + gap <= h2, ...: without the gaps, that is a regression that never falls.
    moved = isotonic_regression([heights[name] for name in order] - room).x + room
    return dict(zip(order, moved.tolist(), strict=True))


def _draw(ax: Axes, found: NDArray[np.float64], colour: str, gap: float) -> None:
    tasks = found.shape[1]
    after = np.arange(1, tasks + 1)
    for task in range(tasks):
        line, at = found[:, task:, task], after[task:]
        mean, std = line.mean(axis=0), _deviation(line)
        shade = shade_of(task, tasks)
        band = ax.fill_between(at, mean - std, np.minimum(mean + std, 1.0), color=shade, alpha=0.2, linewidth=0)
        band.set_gid(OVER_SEEDS)
        ax.plot(
            at,
            mean,
            color=shade,
            linewidth=1.0 if tasks <= MOST_NUMBERS else 0.7,
            marker="o" if tasks <= MOST_NUMBERS else "",
            markersize=2.0,
            gid=OVER_SEEDS,
        )
    means = found.mean(axis=0)
    average = np.nanmean(means, axis=1)
    ax.plot(after, average, color=colour, alpha=0.35, linewidth=4, solid_capstyle="round", zorder=1, gid=OVER_SEEDS)
    ends = {task: float(means[-1, task]) for task in pick_evenly(range(tasks), MOST_NUMBERS)}
    for task, height in spread_out(ends, gap).items():
        ax.annotate(
            str(task + 1), (tasks, height), (5, 0), textcoords="offset points", va="center", size=SMALL, gid=OVER_SEEDS
        )
    ax.set_xticks(after[:: -(-tasks // 8)])
    ax.set_xlim(1 - 0.06 * (tasks - 1), tasks + 0.12 * (tasks - 1))
    ax.grid(axis="y", color=MUTED, alpha=0.25, linewidth=0.5)


def shade_of(task: int, tasks: int) -> str:
    return to_hex(TASK_COLOURS(task / max(tasks - 1, 1)))


def _deviation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
