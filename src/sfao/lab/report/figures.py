"""Figures of the runs of a group, for papers: one function each, which returns None where there is nothing to draw."""

from collections.abc import Callable, Sequence
from math import acos, cos, degrees, radians, sin, sqrt
from statistics import fmean, median
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Arc, Patch, Rectangle
from matplotlib.ticker import FuncFormatter, NullLocator, SymmetricalLogLocator

from sfao.lab.metrics import Spread, average_forgetting, standard_deviation
from sfao.lab.report.comparison import Row
from sfao.lab.report.comparison_table import format_size
from sfao.lab.report.gate_steps import (
    GateStep,
    collect_steps,
    count_decisions,
    gated_rows,
    intervals_of,
    layers_of,
    task_changes,
    thresholds_of,
)
from sfao.lab.report.runs import LoadedRun, RunGroup
from sfao.lab.report.style import (
    INK,
    MUTED,
    ON_DARK,
    RAMP,
    SMALL,
    STYLE,
    WIDTH,
    Drawing,
    and_more,
    color_of,
    marker_of,
    panels,
    pick_evenly,
    shorten,
    text_color_on,
)

ACCURACY_COLORS = LinearSegmentedColormap.from_list("accuracy", RAMP)
#: Light, middle, dark: they differ in grey as well.
DECISION_COLORS = {"accept": "#9fd3c0", "project": "#4f86b8", "discard": "#a8326f"}
#: Methods, panels of layers, and panels of matrices in one figure; others are counted in the caption.
MOST_METHODS, MOST_PANELS = 20, 12
#: Width of a bin of cosines.
BIN = 0.05


def rows_to_show(group: RunGroup, most: int = MOST_METHODS) -> list[Row]:
    """Return the rows with runs that are done, in their order; of too many, those with the highest accuracy."""
    done = [row for row in group.group.rows if row.done]
    kept = sorted(done, key=lambda row: -_mean(row.accuracy))[:most]
    return [row for row in done if row in kept]


def _mean(spread: Spread | None) -> float:
    return spread.mean if spread else 0.0


def _std(spread: Spread | None) -> float:
    return (spread.std if spread else None) or 0.0


def _key(row: str, label: str = "", *, hollow: bool = False, line: Literal["-", "none"] = "none") -> Line2D:
    """Return the entry of a row in a legend."""
    color = color_of(row)
    fill = "none" if hollow else color
    return Line2D([], [], color=color, marker=marker_of(row), linestyle=line, markersize=5, markerfacecolor=fill,
                  label=label or shorten(row, 34))  # fmt: skip


# -- Accuracy --------------------------------------------------------------------------------------------------------


@rc_context(STYLE)
def cost_accuracy(group: RunGroup) -> Drawing | None:
    """Draw accuracy against bytes held and time; None for one method, which has nothing to be compared with."""
    shown = rows_to_show(group)
    if len(shown) < 2:
        return None
    several = len({row.method.split(" ")[0] for row in shown}) < len(shown)
    figure, axes = panels(2, columns=2, height=3.0 + 0.16 * -(-len(shown) // 4), sharey=True)
    costs: list[tuple[str, Callable[[LoadedRun], float], Callable[[float], str]]] = [
        ("bytes held", lambda run: run.record.memory_bytes, format_size),
        ("time of a run", lambda run: run.record.seconds, lambda seconds: f"{seconds:g} s"),
    ]
    for ax, (label, cost, text) in zip(axes, costs, strict=True):
        points = {row.method: [cost(run) for run in group.done[row.method]] for row in shown}
        _draw_costs(ax, shown, points, numbered=several)
        _scale_costs(ax, [fmean(values) for values in points.values()], text)
        ax.set(xlabel=label, ylabel="average accuracy")
        ax.grid()
    labels = [f"{number}  " * several + shorten(row.method, 30) for number, row in enumerate(shown, start=1)]
    keys = [_key(row.method, label, hollow=row.stores_data) for row, label in zip(shown, labels, strict=True)]
    figure.legend(handles=keys, loc="outside lower left", ncols=3 if several else 5)
    return Drawing(
        name=group.file_name("cost-accuracy"),
        title="Accuracy against cost",
        caption="Mean and standard deviation over seeds. The line, a Pareto front, joins the methods that no cheaper "
        "one beats; hollow marks, which are not on it, store data." + and_more(len(group.done) - len(shown), "method"),
        alt="; ".join(map(_describe_cost, shown)) + ".",
        figure=figure,
    )


def _describe_cost(row: Row) -> str:
    cost = f"{format_size(row.memory_bytes or 0)}, {row.seconds:.1f} s"
    return f"{row.method}: accuracy {_mean(row.accuracy):.3f}, {cost}"


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the (cost, accuracy) from cheap to expensive that are each more accurate than all that cost no more."""
    front: list[tuple[float, float]] = []
    for cost, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or accuracy > front[-1][1]:
            front.append((cost, accuracy))
    return front


def _draw_costs(ax: Axes, rows: Sequence[Row], costs: dict[str, list[float]], *, numbered: bool) -> None:
    ranked = [(fmean(costs[row.method]), _mean(row.accuracy)) for row in rows if not row.stores_data]
    if ranked:
        ax.step(*zip(*pareto_front(ranked), strict=True), where="post", color=MUTED, linewidth=1.0, zorder=1)
    for number, row in enumerate(rows, start=1):
        own, color = costs[row.method], color_of(row.method)
        at, accuracy = fmean(own), _mean(row.accuracy)
        ax.errorbar(
            at, accuracy, xerr=min(standard_deviation(own) or 0.0, 0.9 * at), yerr=_std(row.accuracy), color=color,
            marker=marker_of(row.method), markersize=6, elinewidth=0.9, linestyle="none",
            markerfacecolor="none" if row.stores_data else color,
        )  # fmt: skip
        if numbered:
            ax.annotate(str(number), (at, accuracy), (5, 4), textcoords="offset points", size=SMALL)


def _scale_costs(ax: Axes, costs: Sequence[float], text: Callable[[float], str]) -> None:
    """Scale the axis by logarithms where costs differ much, with room for costs of zero."""
    positive = [cost for cost in costs if cost > 0]
    if positive and max(positive) > 4 * min(costs):
        lowest = min(positive)
        ax.set_xscale("symlog", linthresh=lowest)
        subs = (1.0, 2.0, 5.0) if max(positive) < 50 * lowest else (1.0,)
        ax.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=lowest, subs=subs))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.locator_params(axis="x", nbins=4)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value).replace(".0 ", " ")))
    ax.margins(0.08)


@rc_context(STYLE)
def accuracy_matrices(group: RunGroup) -> Drawing | None:
    """Draw the accuracy on every task after every task, one heat map per method."""
    if not group.done:
        return None
    tasks = _count_tasks(group)
    shown = [row.method for row in rows_to_show(group, max(2, min(MOST_PANELS, 2500 // tasks**2)))]
    matrices = {row: np.mean([run.record.accuracy_matrix for run in group.done[row]], axis=0) for row in shown}
    columns = min(len(shown), 4 if tasks <= 10 else 3)
    side = min(WIDTH / columns - 0.25, 2.6)
    figure, axes = panels(len(shown), columns=columns, height=side + 0.45)
    scale = Normalize(np.floor(min(matrix.min() for matrix in matrices.values()) * 10) / 10, 1.0)
    has_numbers = 72 * side / tasks >= 13  # points that `100` needs
    for row, ax in zip(shown, axes, strict=True):
        _draw_matrix(ax, matrices[row], scale, has_numbers)
        ax.set_title(shorten(row))
    if not has_numbers:
        bar = figure.colorbar(ScalarMappable(scale, ACCURACY_COLORS), ax=axes, location="top", shrink=0.4, aspect=30)
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda accuracy, _: f"{100 * accuracy:.0f}"))
    figure.supxlabel("accuracy on task")
    figure.supylabel("after task")
    return Drawing(
        name=group.file_name("accuracy-matrices"),
        title="Accuracy on every task after every task",
        caption="Percent, mean over seeds. A task is learned on the outlined diagonal, and kept or forgotten below it."
        + and_more(len(group.done) - len(shown), "method"),
        alt="Mean accuracy after the last task: "
        + "; ".join(f"{row} {matrices[row][-1].mean():.3f}" for row in shown)
        + ".",
        figure=figure,
    )


def _count_tasks(group: RunGroup) -> int:
    return len(next(iter(group.done.values()))[0].record.accuracy_matrix)


def _draw_matrix(ax: Axes, matrix: Any, scale: Normalize, has_numbers: bool) -> None:
    tasks = len(matrix)
    ax.pcolormesh(matrix, cmap=ACCURACY_COLORS, norm=scale, linewidth=0)
    ticks = np.arange(0, tasks, -(-tasks // 10))
    labels = [str(task + 1) for task in ticks]
    ax.set(xlim=(0, tasks), ylim=(tasks, 0), aspect="equal")
    ax.set_xticks(ticks + 0.5, labels)
    ax.set_yticks(ticks + 0.5, labels)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for (after, task), accuracy in np.ndenumerate(matrix):
        color = text_color_on(ACCURACY_COLORS(scale(accuracy)))
        if after == task:
            ax.add_patch(Rectangle((task + 0.07, task + 0.07), 0.86, 0.86, fill=False, edgecolor=color, linewidth=1.1))
        if has_numbers:
            at = (task + 0.5, after + 0.52)
            ax.text(*at, f"{100 * accuracy:.0f}", ha="center", va="center", color=color, size=SMALL)


def forgetting_so_far(matrix: Sequence[Sequence[float]]) -> list[float]:
    """Return the average forgetting over the tasks seen so far, after each task; 0 after the first."""
    return [average_forgetting([row[:seen] for row in matrix[:seen]]) for seen in range(1, len(matrix) + 1)]


@rc_context(STYLE)
def forgetting_curves(group: RunGroup) -> Drawing | None:
    """Draw the average forgetting over the tasks seen so far, one line per method; None for a single task."""
    if not group.done or _count_tasks(group) < 2:
        return None
    shown = [row.method for row in rows_to_show(group)]
    curves = {
        row: np.array([forgetting_so_far(run.record.accuracy_matrix) for run in group.done[row]]) for row in shown
    }
    figure, (ax,) = panels(1, columns=1, height=3.0 + 0.16 * -(-len(shown) // 5))
    after = np.arange(1, _count_tasks(group) + 1)
    for row in shown:
        mean, color = curves[row].mean(axis=0), color_of(row)
        ax.plot(after, mean, color=color, marker=marker_of(row), markersize=4, linewidth=1.2)
        if len(curves[row]) > 1:
            std = curves[row].std(axis=0, ddof=1)
            ax.fill_between(after, np.maximum(mean - std, 0), mean + std, color=color, alpha=0.15, linewidth=0)
    ax.set(xlabel="after task", ylabel="average forgetting so far", ylim=(0, None))
    ax.set_xticks(after[:: -(-len(after) // 20)])
    ax.grid(axis="y")
    figure.legend(handles=[_key(row, line="-") for row in shown], loc="outside lower left", ncols=5)
    return Drawing(
        name=group.file_name("forgetting"),
        title="Forgetting while tasks are learned",
        caption="Average forgetting over the tasks seen so far: the best accuracy ever measured on a task minus the "
        "present one. Mean over seeds; the bands are one standard deviation."
        + and_more(len(group.done) - len(shown), "method"),
        alt=f"Average forgetting after task {after[-1]}: "
        + "; ".join(f"{row} {curves[row][:, -1].mean():.3f}" for row in shown)
        + ".",
        figure=figure,
    )


# -- The gate --------------------------------------------------------------------------------------------------------


@rc_context(STYLE)
def decisions_over_time(group: RunGroup) -> Drawing | None:
    """Draw what the gate of each layer decided over the run; None without a gate."""
    gates = [
        (row, layer, runs)
        for row, runs in gated_rows(group).items()
        for layer in layers_of(runs)
        if len(intervals_of(runs, layer)) > 1
    ]
    if not gates:
        return None
    shown = pick_evenly(gates, MOST_PANELS)
    figure, axes = panels(len(shown), columns=3, height=1.55 + 0.4 * (len(shown) <= 3), sharex=True, sharey=True)
    told = []
    for (row, layer, runs), ax in zip(shown, axes, strict=True):
        ends = intervals_of(runs, layer)
        counts = sum(count_decisions(run, layer, ends) for run in runs)
        edges = np.cumsum(counts / np.maximum(np.sum(counts, axis=1, keepdims=True), 1), axis=1)
        for number, color in enumerate(DECISION_COLORS.values()):
            below = edges[:, number - 1] if number else 0
            ax.stairs(edges[:, number], ends, baseline=below, fill=True, color=color, linewidth=0)
        for change in task_changes(runs[0]):
            ax.axvline(change, color=ON_DARK, linewidth=1.0, linestyle=":")
        ax.set(xlim=(0, ends[-1]), ylim=(0, 1), yticks=(0, 0.5, 1))
        ax.set_title(f"{shorten(row, 16)} · {shorten(layer, 16)}")
        totals = np.sum(counts, axis=0) / max(np.sum(counts), 1)
        shares = zip(DECISION_COLORS, totals, strict=False)
        told.append(f"{row}, layer {layer}: " + ", ".join(f"{name} {share:.0%}" for name, share in shares))
    keys = [Patch(color=color, label=name) for name, color in DECISION_COLORS.items()]
    figure.legend(handles=keys, loc="outside upper left", ncols=3)
    figure.supxlabel("step")
    figure.supylabel("share of steps")
    return Drawing(
        name=group.file_name("decisions"),
        title="Decisions over time",
        caption="What the gate of each layer decided, all seeds together. Dotted lines: a new task begins. In the "
        "first task there is nothing to compare with, and everything is accepted. Blank: the gradient was zero."
        + and_more(len(gates) - len(shown), "layer"),
        alt="Over the whole run: " + "; ".join(told) + ".",
        figure=figure,
    )


@rc_context(STYLE)
def cosine_histogram(group: RunGroup) -> Drawing | None:
    """Draw histograms of the cosines that the gate decided by, with its thresholds; None without any."""
    found = {
        (row, layer): steps
        for row, runs in gated_rows(group).items()
        for layer in layers_of(runs)
        if (steps := collect_steps(runs, layer))
    }
    if not found:
        return None
    shown = pick_evenly(list(found), MOST_PANELS)
    figure, axes = panels(len(shown), columns=3, height=1.9, sharex=True, sharey=True)
    for (row, layer), ax in zip(shown, axes, strict=True):
        steps = found[row, layer]
        shares = np.full(len(steps), 1 / len(steps))
        bins = np.arange(-1, 1 + BIN, BIN)
        ax.hist([step.cosine for step in steps], bins=bins.tolist(), weights=shares, color=color_of(row), rwidth=0.9)
        for kind, value in thresholds_of(steps[0].run).items():
            ax.axvline(value, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
            side = 1 if kind == "accept" else -1
            ax.annotate(
                kind, (value, 0.98), (3 * side, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
                ha="left" if side > 0 else "right", va="top", size=SMALL,
            )  # fmt: skip
        ax.set_xlim(min(-0.6, *(step.cosine for step in steps)), 1.3)
        ax.set_title(f"{shorten(row, 16)} · {shorten(layer, 16)}")
    figure.supxlabel("largest cosine with a stored direction")
    figure.supylabel("share of steps")
    medians = (f"{row}, {layer}: {median(step.cosine for step in found[row, layer]):.2f}" for row, layer in shown)
    return Drawing(
        name=group.file_name("cosines"),
        title="Cosines that the gate decided by",
        caption="Every recorded step after the first task, all seeds together. Dashed lines: the thresholds; between "
        "them, and where there are none, steps are projected." + and_more(len(found) - len(shown), "layer"),
        alt=f"Median cosine: {'; '.join(medians)}.",
        figure=figure,
    )


@rc_context(STYLE)
def update_geometry(group: RunGroup) -> Drawing | None:
    """Draw gradient, update and nearest direction of a typical real step; None when no step was projected."""
    by_row = {row: collect_steps(runs) for row, runs in gated_rows(group).items()}
    found = {row: own for row, steps in by_row.items() if (own := [step for step in steps if step.is_projected])}
    if not found:
        return None
    row, projected = next(iter(found.items()))
    step = typical_step(projected)
    kept, removed = step.kept, sqrt(1 - step.kept**2)
    # The nearest direction b lies in the span, so its part along Pg is cos(g, b) / |Pg|.
    part = max(-1.0, min(1.0, step.cosine / removed))
    (left, right), (bottom, top) = (min(-0.6, part - 0.35), 1.45), (-0.24, kept + 0.16)
    figure, (ax,) = panels(1, columns=1, height=WIDTH * (top - bottom) / (right - left))
    _draw_step(ax, step, removed, part, color_of(row))
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    ax.annotate("span of the memory", (left, 0), (0, 3), textcoords="offset points", color=MUTED, size=SMALL)
    ax.set_axis_off()
    numbers = (
        f"of the gradient g (length 1) the update u keeps {kept:.2f}; the part Pg in the span of the memory, "
        f"{removed:.2f} long, is removed; the nearest stored direction b has cosine {step.cosine:.2f} with g"
    )
    return Drawing(
        name=group.file_name("update-geometry"),
        title="The geometry of an update",
        caption=f"A real step: {row}, run {step.run.name}, step {step.step}, layer {step.layer}; of {len(projected):,} "
        f"projected steps recorded, the one nearest to their median. The plane of g and u, to scale: {numbers}; "
        f"{abs(part):.2f} of b lies in this plane."
        + " Drawn as if u and Pg were orthogonal."
        * (step.run.options.get("projection") == "sequential"),
        alt=f"Arrows in a plane: {numbers}.",
        figure=figure,
    )


def typical_step(steps: Sequence[GateStep]) -> GateStep:
    """Return the step nearest to the median of cosine and share kept; the first of equals."""
    cosine, kept = median(step.cosine for step in steps), median(step.kept for step in steps)
    return min(steps, key=lambda step: (step.cosine - cosine) ** 2 + (step.kept - kept) ** 2)


def _draw_step(ax: Axes, step: GateStep, removed: float, part: float, color: str) -> None:
    kept = step.kept
    ax.axhline(0, color=MUTED, linewidth=0.6, zorder=0)
    ax.plot((removed, removed, 0), (0, kept, kept), color=MUTED, linewidth=0.7, linestyle=(0, (3, 2)))
    arrows: list[tuple[float, float, float, str]] = [
        (part, -0.035, -0.035, "#7a5fc0"),  # b, beside Pg
        (removed, 0, 0, MUTED),
        (removed, 0, kept, INK),
        (0, 0, kept, color),
    ]
    for across, start, end, shade in arrows:
        look = {"arrowstyle": "-|>,head_length=0.55,head_width=0.22", "color": shade, "linewidth": 1.5}
        ax.annotate("", (across, end), (0, start), arrowprops={**look, "shrinkA": 0, "shrinkB": 0})
    is_flat = kept < 0.2  # then the labels of g and u would cover that of Pg
    angle = degrees(acos(removed))
    if not is_flat:
        ax.add_patch(Arc((0, 0), 0.5, 0.5, theta1=0, theta2=angle, color=INK, linewidth=0.7))
        at = (0.29 * cos(radians(angle / 2)), 0.29 * sin(radians(angle / 2)))
        ax.annotate(f"{angle:.0f}°", at, va="center", size=SMALL)
    nearest = f"nearest direction b: cos(g, b) = {step.cosine:.2f}\nits part in this plane is {abs(part):.2f} long"
    low, high = ("top", "bottom") if is_flat else ("bottom", "top")
    for text, point, offset, across_at, up_at in (
        ("gradient g, length 1", (removed, kept), (4, 3), "left", "bottom"),
        (f"update u = g - Pg\nlength {kept:.2f}", (0, kept), (-5, 0), "right", high),
        (f"Pg, removed\nlength {removed:.2f}", (max(removed, 0.27), 0), (5, -4 if is_flat else 4), "left", low),
        (nearest, (part / 2, -0.035), (0, -5), "center", "top"),
    ):
        ax.annotate(text, point, offset, textcoords="offset points", ha=across_at, va=up_at)


#: From results to reasons.
FIGURES = (cost_accuracy, accuracy_matrices, forgetting_curves, update_geometry, decisions_over_time, cosine_histogram)


def draw_figures(group: RunGroup) -> list[Drawing]:
    """Return the figures that the runs of a group have data for."""
    return [drawing for figure in FIGURES if (drawing := figure(group)) is not None]
