"""Accuracy on every task after every task: a heat map a method."""

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from sfao.reports.figures.drawing import Drawing
from sfao.reports.figures.style import (
    INK,
    ON_DARK,
    ON_LIGHT,
    RAMP,
    SMALL,
    STYLE,
    WIDTH,
    and_more,
    limited,
    panels,
    shortened,
)
from sfao.reports.groups import RunGroup
from sfao.reports.runs import LoadedRun

MOST_PANELS = 12
#: Points that `.83` needs.
ROOM = 14.0
COLOURS = LinearSegmentedColormap.from_list("accuracy", RAMP)


def mean_matrix(runs: list[LoadedRun]) -> NDArray[np.float64]:
    """Over seeds; row t is after task t."""
    return np.asarray(np.mean([run.record.accuracy_matrix for run in runs], axis=0))


@rc_context(STYLE)
def accuracy_matrices(group: RunGroup) -> Drawing | None:
    matrices = {row: mean_matrix(runs) for row, runs in group.done.items()}
    if not matrices:
        return None
    shown = limited(list(matrices), MOST_PANELS)
    tasks = len(matrices[shown[0]])
    columns = min(len(shown), 4 if tasks <= 10 else 3)
    side = WIDTH / columns - 0.25
    figure, axes = panels(len(shown), columns=columns, height=min(side, 2.6) + 0.3, share_x=True)
    lowest = min(matrices[row].min() for row in shown)
    scale = Normalize(np.floor(lowest * 10) / 10, 1.0)
    written = 72 * min(side, 2.6) / tasks >= ROOM
    for row, ax in zip(shown, axes, strict=True):
        _draw(ax, matrices[row], scale, written)
        ax.set_title(shortened(row))
    if not written:
        bar = figure.colorbar(axes[0].collections[0], ax=axes, shrink=0.6, aspect=30, pad=0.02)
        bar.outline.set_visible(False)  # type: ignore[operator]
    figure.supxlabel("accuracy on task")
    figure.supylabel("after task")
    return Drawing(
        name=group.file_name("accuracy-matrices"),
        title="Accuracy on every task after every task",
        caption=(
            f"Mean over seeds. A column tells how a task fares: learnt on the outlined diagonal, then kept or "
            f"forgotten below it; above, before it was ever trained on.{and_more(len(matrices) - len(shown), 'method')}"
        ),
        alt="Accuracy of each task at the end: "
        + "; ".join(f"{row} {_listed(matrices[row][-1])}" for row in shown)
        + ".",
        figure=figure,
    )


def _draw(ax: Axes, matrix: NDArray[np.float64], scale: Normalize, written: bool) -> None:
    tasks = len(matrix)
    ax.pcolormesh(matrix, cmap=COLOURS, norm=scale, edgecolors="none", linewidth=0)
    ax.set(xlim=(0, tasks), ylim=(tasks, 0), aspect="equal")
    every = max(1, -(-tasks // 10))
    ticks = np.arange(0, tasks, every)
    ax.set_xticks(ticks + 0.5, [str(task + 1) for task in ticks])
    ax.set_yticks(ticks + 0.5, [str(task + 1) for task in ticks])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for task in range(tasks):
        ax.add_patch(Rectangle((task, task), 1, 1, fill=False, edgecolor=INK, linewidth=0.7))
    if written:
        for (after, task), accuracy in np.ndenumerate(matrix):
            colour = ON_DARK if scale(accuracy) > 0.55 else ON_LIGHT
            ax.text(task + 0.5, after + 0.52, _short(accuracy), ha="center", va="center", color=colour, size=SMALL)


def _short(accuracy: float) -> str:
    """`.83`, and `1` for what rounds to it."""
    return f"{accuracy:.2f}".removeprefix("0") if accuracy < 0.995 else "1"


def _listed(accuracies: NDArray[np.float64]) -> str:
    return ", ".join(f"{accuracy:.2f}" for accuracy in accuracies)
