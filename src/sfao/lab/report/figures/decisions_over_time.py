"""The decisions of the gate of each layer over the course of training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from sfao.lab.report.figures.drawing import OVER_SEEDS, Drawing, Mark, Panel
from sfao.lab.report.figures.gate_looks import gated_rows, layers_of
from sfao.lab.report.figures.style import ON_DARK, SMALL, STYLE, and_more, panels, pick_evenly, title_of
from sfao.lab.report.groups import RunGroup
from sfao.lab.report.runs import DECISIONS, LoadedRun

#: Light, middle, dark: they differ in grey as well.
COLOURS = {"accept": "#9fd3c0", "project": "#4f86b8", "discard": "#a8326f"}
MOST_PANELS = 12
#: Stretches of time in a panel; more are finer than it is printed.
MOST_STRETCHES = 60


@rc_context(STYLE)
def decisions_over_time(group: RunGroup) -> Drawing | None:
    gates = [(row, layer, runs) for row, runs in gated_rows(group).items() for layer in layers_of(runs)]
    gates = [(row, layer, runs) for row, layer, runs in gates if len(count_decisions(runs, layer)[1])]
    if not gates:
        return None
    shown = pick_evenly(gates, MOST_PANELS)
    figure, axes = panels(
        len(shown), columns=min(3, len(shown)), height=1.55 + 0.4 * (len(shown) <= 3), share_x=True, apart=True
    )
    shown_panels = []
    for (row, layer, runs), ax in zip(shown, axes, strict=True):
        steps, counts = count_decisions(runs, layer)
        _draw(ax, steps, counts)
        shown_panels.append(
            Panel(ax, row, layer, marks=_mark(steps, counts), redraw=_count_by_seed(runs, layer, steps))
        )
        _mark_tasks(ax, runs[0])
        ax.set_title(title_of(row, layer))
    patches = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    figure.legend(handles=patches, loc="outside upper left", ncols=3, frameon=False, fontsize=SMALL)
    figure.supxlabel("step")
    figure.supylabel("share of steps")
    return Drawing(
        name=group.file_name("decisions"),
        title="Decisions over time",
        caption=(
            "What the gate of each layer did, all seeds together. Dotted lines: a new task begins; in the first "
            "there is nothing to compare with, and everything is accepted. Blank: the gradient was zero."
            + and_more(len(gates) - len(shown), "layer")
        ),
        alt="Over the whole run: " + "; ".join(_describe(*gate) for gate in shown) + ".",
        figure=figure,
        panels=shown_panels,
        axes="across: step; up: share of steps",
        redraw={"kind": "shares", "colours": list(COLOURS.values()), "names": list(DECISIONS)},
    )


def count_decisions(runs: Sequence[LoadedRun], layer: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the ends of stretches of steps, and the counts of decisions in each: [stretch, decision].

    From differences of the counts so far, summed over runs; the last column is gradients that were zero. No stretches
    where the runs, damaged, have no step in common.
    """
    by_run = [counts for run in runs if (counts := _read_counts(run, layer))]  # a run may have lost its telemetry
    common = sorted(set.intersection(*(set(counts) for counts in by_run)))
    steps = np.array([0, *pick_evenly(common, MOST_STRETCHES)])
    return steps, sum((_count_between(counts, steps) for counts in by_run), np.zeros((len(steps) - 1, len(DECISIONS))))


def _read_counts(run: LoadedRun, layer: str) -> dict[int, dict[str, int]]:
    """Return {step: counts so far} of a layer."""
    return {line["step"]: line["decisions"][layer] for line in run.steps if layer in line["decisions"]}


def _count_between(counts: dict[int, dict[str, int]], steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the counts of one run between those steps: [stretch, decision]."""
    so_far = [[counts[step][name] for name in DECISIONS] for step in steps[1:].tolist()]
    return np.diff(np.array([[0] * len(DECISIONS), *so_far], dtype=float), axis=0)


def _count_by_seed(runs: Sequence[LoadedRun], layer: str, steps: NDArray[np.int64]) -> dict[str, Any]:
    """Return what a panel is drawn anew from: the stretches, and the counts of each run in them."""
    known = {run.record.seed: counts for run in runs if (counts := _read_counts(run, layer))}
    return {
        "steps": steps.tolist(),
        "counts": {seed: _count_between(counts, steps).astype(int).tolist() for seed, counts in known.items()},
    }


def _draw(ax: Axes, steps: NDArray[np.int64], counts: NDArray[np.float64]) -> None:
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    edges = np.concatenate([np.zeros((len(shares), 1)), np.cumsum(shares[:, : len(COLOURS)], axis=1)], axis=1)
    for number, colour in enumerate(COLOURS.values()):
        ax.stairs(
            edges[:, number + 1], steps, baseline=edges[:, number], fill=True, color=colour, linewidth=0, gid=OVER_SEEDS
        )
    ax.set(xlim=(0, steps[-1]), ylim=(0, 1), yticks=(0, 0.5, 1))
    ax.locator_params(axis="x", nbins=5)


def _mark(steps: NDArray[np.int64], counts: NDArray[np.float64]) -> list[Mark]:
    """Return the shares of every stretch."""
    marks = []
    for start, end, own in zip(steps.tolist(), steps[1:].tolist(), counts.tolist(), strict=False):
        shares = (f"{name} {count / max(sum(own), 1):.0%}" for name, count in zip(DECISIONS, own, strict=True) if count)
        marks.append(Mark((start + end) / 2, 0.5, f"steps {start + 1} to {end}: {', '.join(shares)}", end - start, 1))
    return marks


def _mark_tasks(ax: Axes, run: LoadedRun) -> None:
    """Mark the places between the last line of a task and the first of the next."""
    for before, after in zip(run.steps, run.steps[1:], strict=False):
        if after["task"] != before["task"]:
            ax.axvline((before["step"] + after["step"]) / 2, color=ON_DARK, linewidth=1.0, linestyle=":")


def _describe(row: str, layer: str, runs: list[LoadedRun]) -> str:
    totals = count_decisions(runs, layer)[1].sum(axis=0)
    shares = totals / max(totals.sum(), 1)
    return f"{row}, layer {layer}: " + ", ".join(
        f"{name} {share:.0%}" for name, share in zip(COLOURS, shares, strict=False)
    )
