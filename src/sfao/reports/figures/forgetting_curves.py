"""How the accuracy of each task falls while later ones are learnt: a panel a method."""

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray

from sfao.reports.figures.drawing import Drawing
from sfao.reports.figures.style import (
    INK,
    MUTED,
    SMALL,
    STYLE,
    and_more,
    limited,
    method_colour,
    panels,
    shortened,
)
from sfao.reports.groups import RunGroup
from sfao.reports.runs import LoadedRun

MOST_PANELS = 12
#: Above this many, the first, the last and some between carry their number.
MOST_NUMBERS = 10
#: From the first task to the last: blue to ochre, which all colour-blind readers see, without the ends that vanish on
#: white or on black.
TASK_COLOURS = LinearSegmentedColormap.from_list("tasks", ("#2c6fbb", "#6b8fa3", "#a59a6a", "#d0a020"))


@rc_context(STYLE)
def forgetting_curves(group: RunGroup) -> Drawing | None:
    """None for streams of a single task, of which nothing can be forgotten."""
    rows = {row: runs for row, runs in group.done.items() if len(runs[0].record.accuracy_matrix) > 1}
    if not rows:
        return None
    shown = limited(list(rows), MOST_PANELS)
    figure, axes = panels(len(shown), columns=min(4, len(shown)), height=1.9, share_x=True)
    for row, ax in zip(shown, axes, strict=True):
        _draw(ax, accuracies(rows[row]), method_colour(row))
        ax.set_title(shortened(row))
    figure.supxlabel("after task")
    figure.supylabel("accuracy")
    several = any(len(runs) > 1 for runs in rows.values())
    band = " with the standard deviation over seeds as a band" if several else ""
    numbers = {row.method: row for row in group.group.rows}
    return Drawing(
        name=group.file_name("forgetting"),
        title="What is left of each task",
        caption=(
            f"A thin line is one task, from when it was learnt (its number) to the end, blue the first to ochre the "
            f"last: the mean{band}. The thick line is the mean over the tasks learnt so far."
            f"{and_more(len(rows) - len(shown), 'method')}"
        ),
        alt="Average forgetting: "
        + "; ".join(f"{row} {spread.mean:.3f}" for row in shown if (spread := numbers[row].forgetting))
        + ".",
        figure=figure,
    )


def accuracies(runs: list[LoadedRun]) -> NDArray[np.float64]:
    """[seed, after task, task]; not a number before the task was learnt."""
    found = np.array([run.record.accuracy_matrix for run in runs], dtype=float)
    after, task = np.indices(found.shape[1:])
    found[:, after < task] = np.nan
    return found


def _draw(ax: Axes, found: NDArray[np.float64], colour: str) -> None:
    tasks = found.shape[1]
    after = np.arange(1, tasks + 1)
    numbered = limited(range(tasks), MOST_NUMBERS)
    for task in range(tasks):
        line, at = found[:, task:, task], after[task:]
        mean, std = line.mean(axis=0), _deviation(line)
        shade = TASK_COLOURS(task / max(tasks - 1, 1))
        ax.fill_between(at, mean - std, np.minimum(mean + std, 1.0), color=shade, alpha=0.2, linewidth=0)
        ax.plot(at, mean, color=shade, linewidth=1.0, marker="o", markersize=2.0)
        if task in numbered:
            ax.annotate(
                str(task + 1),
                (at[0], mean[0]),
                (0, 3.5),
                textcoords="offset points",
                ha="center",
                size=SMALL,
                color=INK,
            )
    ax.plot(after, np.nanmean(found, axis=(0, 2)), color=colour, linewidth=2.2, solid_capstyle="round")
    ax.set_xticks(limited(after.tolist(), 10))
    ax.set_xlim(0.7, tasks + 0.3)
    ax.margins(y=0.12)
    ax.grid(axis="y", color=MUTED, alpha=0.25, linewidth=0.5)


def _deviation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
