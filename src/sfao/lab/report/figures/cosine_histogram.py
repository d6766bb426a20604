"""Histograms of the cosines that the gate decides by, with its thresholds."""

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from numpy.typing import NDArray

from sfao.lab.report.figures.drawing import OVER_SEEDS, Drawing, Mark, Panel
from sfao.lab.report.figures.gate_looks import Look, collect_looks, gated_rows
from sfao.lab.report.figures.style import INK, SMALL, STYLE, and_more, method_colour, panels, pick_evenly, title_of
from sfao.lab.report.groups import RunGroup

MOST_PANELS = 9
BIN = 0.05
#: The share of its width that a bar fills.
FILLED = 0.9
#: The options that hold the thresholds, with what happens beyond each.
THRESHOLDS = {"discard_below": "discard", "accept_above": "accept"}


@rc_context(STYLE)
def cosine_histogram(group: RunGroup) -> Drawing | None:
    found = {row: looks for row, runs in gated_rows(group).items() if (looks := collect_looks(runs))}
    if not found:
        return None
    split = {(row, layer): own for row, all_of in found.items() for layer, own in _by_layer(all_of).items()}
    joint = len(split) > MOST_PANELS
    pooled = {(row, "all layers"): own for row, own in found.items()} if joint else split
    shown = pick_evenly(list(pooled), MOST_PANELS)
    figure, axes = panels(len(shown), columns=min(3, len(shown)), height=1.9, share_x=True, apart=True)
    shown_panels = []
    for gate, ax in zip(shown, axes, strict=True):
        row, layer = gate
        _draw(ax, pooled[gate], method_colour(row))
        own = pooled[gate]
        shown_panels.append(
            Panel(ax, row, "" if joint else layer, marks=_mark(cosines(own)), redraw=_count_by_seed(own))
        )
        ax.set_title(title_of(row, layer))
    signed = {own[0].run.options.get("cosine", "signed") for own in pooled.values()}
    across = "largest cosine with a stored direction" if signed == {"signed"} else "largest |cosine|"
    figure.supxlabel(across)
    figure.supylabel("share of steps")
    count = sum(len(own) for own in pooled.values())
    return Drawing(
        name=group.file_name("cosines"),
        title="What the gate saw",
        caption=(
            f"The cosine that decided, at {count:,} looks of the gate: every recorded step after the first task, all "
            "seeds together. Dashed lines: the thresholds; between them, and where there are none, "
            "steps are projected."
            + (" All layers of a method together." if joint else "")
            + and_more(len(pooled) - len(shown), "panel")
        ),
        alt="Median cosine: "
        + "; ".join(f"{row}, {layer}: {np.median(cosines(pooled[row, layer])):.2f}" for row, layer in shown)
        + ".",
        figure=figure,
        panels=shown_panels,
        axes=f"across: {across}; up: share of steps",
        redraw={"kind": "bins", "width": BIN, "filled": FILLED},
    )


def thresholds(found: list[Look]) -> dict[str, float]:
    """Return {option: value} of the thresholds that a cosine can be beyond."""
    options = {name: value for name, value in found[0].run.options.items() if isinstance(value, float)}
    return {name: float(options[name]) for name in THRESHOLDS if abs(options.get(name, 1.0)) < 1}


def cosines(found: list[Look]) -> list[float]:
    return [look.cosine for look in found]


def _by_layer(found: list[Look]) -> dict[str, list[Look]]:
    layers: dict[str, list[Look]] = {}
    for look in found:
        layers.setdefault(look.layer, []).append(look)
    return layers


def _find_edges(values: list[float]) -> NDArray[np.float64]:
    """Return edges at multiples of the bin, so that panels can be read against each other."""
    first, last = np.floor(min(values) / BIN), np.ceil(max(values) / BIN)
    return np.arange(min(first, last - 1), last + 1) * BIN


def _by_seed(found: list[Look]) -> dict[int, list[float]]:
    seeds: dict[int, list[float]] = {}
    for look in found:
        seeds.setdefault(look.run.record.seed, []).append(look.cosine)
    return seeds


def _count_by_seed(found: list[Look]) -> dict[str, Any]:
    """Return what a panel is drawn anew from: the first edge, and the looks of each run in every bin."""
    edges = _find_edges(cosines(found))
    counts = {seed: np.histogram(values, edges)[0].tolist() for seed, values in _by_seed(found).items()}
    return {"first": float(edges[0]), "counts": counts, "colour": method_colour(found[0].run.record.method)}


def _mark(values: list[float]) -> list[Mark]:
    """Return the share of every bin that has any."""
    edges = _find_edges(values)
    shares = np.histogram(values, edges)[0] / len(values)
    return [
        Mark(low + BIN / 2, share / 2, f"{low:.2f} to {low + BIN:.2f}: {share:.1%} of steps", BIN, share)
        for low, share in zip(edges.tolist(), shares.tolist(), strict=False)
        if share
    ]


def _draw(ax: Axes, found: list[Look], colour: str) -> None:
    values = cosines(found)
    edges = _find_edges(values)
    ax.hist(
        values,
        bins=edges.tolist(),
        weights=np.full(len(values), 1 / len(values)),
        color=colour,
        edgecolor="none",
        rwidth=FILLED,
        gid=OVER_SEEDS,
    )
    # No share of any seeds together is larger than the largest of a single one: a page draws those in the same frame.
    tallest = max(np.histogram(own, edges)[0].max() / len(own) for own in _by_seed(found).values())
    room = 1.25 if thresholds(found) else 1.05  # for their words
    ax.set_ylim(0, max(room * tallest, ax.get_ylim()[1]))  # the panels share this axis
    for name, value in thresholds(found).items():
        ax.axvline(value, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        side = 1 if name == "accept_above" else -1
        ax.annotate(
            f"{THRESHOLDS[name]}\n{'>' if side > 0 else '≤'} {value:g}", (value, 0.98), (3 * side, 0),
            xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="left" if side > 0 else "right", va="top", size=SMALL,
        )  # fmt: skip
    lowest = min([-0.1, edges[0], *thresholds(found).values()])
    ax.set_xlim(lowest - 0.45, 1.3)  # room for words on both sides
    ax.set_xticks([tick for tick in (-1.0, -0.5, 0.0, 0.5, 1.0) if tick >= lowest])
