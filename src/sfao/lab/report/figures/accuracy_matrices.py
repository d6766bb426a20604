"""Accuracy on every task after every task: one heat map per method."""

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from sfao.lab.report.comparison import list_best
from sfao.lab.report.figures.drawing import OVER_SEEDS, OVER_SEEDS_TAG, Drawing, Mark, Panel
from sfao.lab.report.figures.pieces import KEY
from sfao.lab.report.figures.style import (
    RAMP,
    SMALL,
    STYLE,
    WIDTH,
    and_more,
    columns_for,
    ink_on,
    most_panels,
    panels,
    pick_with,
    shorten,
)
from sfao.lab.report.groups import RunGroup
from sfao.lab.report.runs import LoadedRun

#: Points that `100` needs.
ROOM = 13.0
#: Points of the outline of the diagonal, and its distance from the edge of a cell as a share of that.
OUTLINE, INSET = 1.1, 0.07
#: Shades that are told apart.
LEVELS = 50
#: The id of the cells, which are crisp: neighbours would show a seam between them.
CELLS = "cells"
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
    shown = pick_with(list_best(group.group), list(matrices), most_panels(tasks))
    over_seeds = ", mean over seeds" if any(len(runs) > 1 for runs in group.done.values()) else ""
    columns = columns_for(len(shown), tasks)
    side = WIDTH / columns - 0.25
    figure, axes = panels(len(shown), columns=columns, height=min(side, 2.6) + 0.45, share_x=True, apart=True)
    lowest = min(matrices[row].min() for row in shown)
    scale = Normalize(np.floor(lowest * 10) / 10, 1.0)
    written = 72 * min(side, 2.6) / tasks >= ROOM
    for row, ax in zip(shown, axes, strict=True):
        _draw(ax, matrices[row], scale, written)
        ax.set_title(shorten(row))
    if not written:
        bar = figure.colorbar(
            ScalarMappable(scale, COLOURS), ax=axes, location="top", anchor=(0, 0), shrink=0.4, aspect=30
        )
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda accuracy, _: f"{100 * accuracy:.0f}"))
        bar.outline.set_visible(False)
        bar.ax.set_gid(KEY)
    figure.supxlabel("accuracy on task")
    figure.supylabel("after task")
    return Drawing(
        name=group.file_name("accuracy-matrices"),
        title="Accuracy on every task after every task",
        caption=(
            f"Percent{over_seeds}. A column tells how a task fares: learnt on the outlined diagonal, then kept or "
            f"forgotten below it; above, before it was ever trained on.{and_more(len(matrices) - len(shown), 'method')}"
        ),
        alt="Accuracy of each task at the end: "
        + "; ".join(f"{row} {_list_numbers(matrices[row][-1])}" for row in shown)
        + ".",
        figure=figure,
        panels=[Panel(ax, row, marks=mark_cells(group.done[row])) for row, ax in zip(shown, axes, strict=True)],
        axes="across: accuracy on task; down: after task",
        tags={OVER_SEEDS: OVER_SEEDS_TAG, CELLS: {**OVER_SEEDS_TAG, "shape-rendering": "crispEdges"}},
        redraw={
            "kind": "matrix",
            "lowest": scale.vmin,
            "shades": [(to_hex(shade), ink_on(shade)) for shade in COLOURS(np.linspace(0, 1, LEVELS + 1)).tolist()],
            "isWritten": written,
            "outline": (INSET, OUTLINE),
            "letters": SMALL,
        },
    )


def mark_cells(runs: list[LoadedRun]) -> list[Mark]:
    """Return the value of every cell, with its deviation over seeds."""
    found = np.array([run.record.accuracy_matrix for run in runs], dtype=float)
    means = found.mean(axis=0)
    spreads = found.std(axis=0, ddof=1) if len(found) > 1 else None
    return [
        Mark(
            task + 0.5,
            after + 0.5,
            tell_accuracy(task, after, mean, None if spreads is None else spreads[after, task]),
            1,
            1,
        )
        for (after, task), mean in np.ndenumerate(means)
    ]


def tell_accuracy(task: int, after: int, mean: float, std: float | None) -> str:
    """Return the words for one accuracy, tasks counted from 0."""
    return f"task {task + 1} after task {after + 1}: {mean:.3f}" + ("" if std is None else f" ± {std:.3f}")


def _draw(ax: Axes, matrix: NDArray[np.float64], scale: Normalize, written: bool) -> None:
    tasks = len(matrix)
    for level, cells in _by_level(matrix, scale).items():
        ax.add_patch(PathPatch(cells, facecolor=COLOURS(level / LEVELS), edgecolor="none", gid=CELLS))
    ax.set(xlim=(0, tasks), ylim=(tasks, 0), aspect="equal")
    every = max(1, -(-tasks // 10))
    ticks = np.arange(0, tasks, every)
    ax.set_xticks(ticks + 0.5, [str(task + 1) for task in ticks])
    ax.set_yticks(ticks + 0.5, [str(task + 1) for task in ticks])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for task in range(tasks):
        ink = ink_on(COLOURS(scale(matrix[task, task])))
        corner, side = task + INSET, 1 - 2 * INSET
        outline = Rectangle((corner, corner), side, side, fill=False, edgecolor=ink, linewidth=OUTLINE, gid=OVER_SEEDS)
        ax.add_patch(outline)
    if written:
        for (after, task), accuracy in np.ndenumerate(matrix):
            ax.text(
                task + 0.5, after + 0.52, f"{100 * accuracy:.0f}", ha="center", va="center",
                color=ink_on(COLOURS(scale(accuracy))), size=SMALL, gid=OVER_SEEDS,
            )  # fmt: skip


def _by_level(matrix: NDArray[np.float64], scale: Normalize) -> dict[int, Path]:
    """{level of colour: its cells, as one path}: cells that are drawn one by one make a page ten times as big."""
    found: dict[int, list[Path]] = {}
    for (after, task), accuracy in np.ndenumerate(matrix):
        square = Path([(task, after), (task + 1, after), (task + 1, after + 1), (task, after + 1), (0, 0)], closed=True)
        found.setdefault(round(LEVELS * float(scale(accuracy))), []).append(square)
    return {level: Path.make_compound_path(*cells) for level, cells in found.items()}


def _list_numbers(accuracies: NDArray[np.float64]) -> str:
    if len(accuracies) > 10:
        return f"{accuracies.mean():.2f} on average, {accuracies.min():.2f} to {accuracies.max():.2f}"
    return ", ".join(f"{accuracy:.2f}" for accuracy in accuracies)
