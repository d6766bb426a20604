"""Accuracy on every task after every task: a heat map a method."""

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
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
    columns_for,
    most_panels,
    panels,
    pick_evenly,
    shorten,
)
from sfao.reports.groups import RunGroup
from sfao.reports.runs import LoadedRun

#: Points that `.83` needs.
ROOM = 14.0
#: Shades that are told apart.
LEVELS = 50
COLOURS = LinearSegmentedColormap.from_list("accuracy", RAMP)


def mean_matrix(runs: list[LoadedRun]) -> NDArray[np.float64]:
    """Return the mean over seeds; row t is after task t."""
    return np.asarray(np.mean([run.record.accuracy_matrix for run in runs], axis=0))


@rc_context(STYLE)
def accuracy_matrices(group: RunGroup) -> Drawing | None:
    matrices = {row: mean_matrix(runs) for row, runs in group.done.items()}
    if not matrices:
        return None
    tasks = len(next(iter(matrices.values())))
    shown = pick_evenly(list(matrices), most_panels(tasks))
    columns = columns_for(len(shown), tasks)
    side = WIDTH / columns - 0.25
    figure, axes = panels(len(shown), columns=columns, height=min(side, 2.6) + 0.45, share_x=True)
    lowest = min(matrices[row].min() for row in shown)
    scale = Normalize(np.floor(lowest * 10) / 10, 1.0)
    written = 72 * min(side, 2.6) / tasks >= ROOM
    for row, ax in zip(shown, axes, strict=True):
        _draw(ax, matrices[row], scale, written)
        ax.set_title(shorten(row))
    if not written:
        bar = figure.colorbar(ScalarMappable(scale, COLOURS), ax=axes, shrink=0.6, aspect=30, pad=0.02)
        bar.outline.set_visible(False)
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
        + "; ".join(f"{row} {_list_numbers(matrices[row][-1])}" for row in shown)
        + ".",
        figure=figure,
    )


def _draw(ax: Axes, matrix: NDArray[np.float64], scale: Normalize, written: bool) -> None:
    tasks = len(matrix)
    for level, cells in _by_level(matrix, scale).items():
        ax.add_patch(PathPatch(cells, facecolor=COLOURS(level / LEVELS), edgecolor="none"))
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


def _by_level(matrix: NDArray[np.float64], scale: Normalize) -> dict[int, Path]:
    """{level of colour: its cells, as one path}: cells that are drawn one by one make a page ten times as big."""
    found: dict[int, list[Path]] = {}
    for (after, task), accuracy in np.ndenumerate(matrix):
        square = Path([(task, after), (task + 1, after), (task + 1, after + 1), (task, after + 1), (0, 0)], closed=True)
        found.setdefault(round(LEVELS * float(scale(accuracy))), []).append(square)
    return {level: Path.make_compound_path(*cells) for level, cells in found.items()}


def _short(accuracy: float) -> str:
    """`.83`, and `1` for what rounds to it."""
    return f"{accuracy:.2f}".removeprefix("0") if accuracy < 0.995 else "1"


def _list_numbers(accuracies: NDArray[np.float64]) -> str:
    if len(accuracies) > 10:
        return f"{accuracies.mean():.2f} on average, {accuracies.min():.2f} to {accuracies.max():.2f}"
    return ", ".join(f"{accuracy:.2f}" for accuracy in accuracies)
