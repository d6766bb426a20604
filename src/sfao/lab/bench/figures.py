"""The figure of the gate's cost: against the directions stored, and against the parameters of the model."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sfao.lab.bench.results import Results, Row
from sfao.lab.report.figures.drawing import Drawing
from sfao.lab.report.figures.style import METHOD_COLOURS, MUTED, STYLE, panels

#: In the order of their first appearance: the released loop, then the storages.
LOOKS = [METHOD_COLOURS[name] for name in ("ogd", "sfao", "joint", "ewc", "gem", "si", "gpm", "agem")]

MOST_MARKS = 6


@rc_context(STYLE)
def cost_figure(results: Results) -> Drawing | None:
    """Draw the cost of the gate; None when nothing was varied that could be drawn."""
    gated = [row for row in results.rows if row.directions and row.group.endswith("directions")]
    models = [model for model in dict.fromkeys(row.model for row in gated) if _varies(gated, model)]
    usual = _most_common([row.directions for row in gated])
    beside = [row for row in gated if row.directions == usual]
    by_size = len({row.parameters for row in beside}) > 1
    count = len(models) + by_size
    if count == 0:
        return None
    names = list(dict.fromkeys(row.name for row in gated))
    looks = {name: LOOKS[number % len(LOOKS)] for number, name in enumerate(names)}
    figure, axes = panels(count, columns=3, height=2.4)
    for ax, model in zip(axes, models, strict=False):
        _draw(ax, [row for row in gated if row.model == model], lambda row: row.directions, looks)
        ax.set(title=model, xlabel="directions a layer")
        ax.tick_params(labelbottom=True)
    if by_size:
        _draw(axes[-1], beside, lambda row: row.parameters, looks)
        axes[-1].set(title=f"{usual} directions a layer", xlabel="parameters of the model")
        axes[-1].tick_params(labelbottom=True)
    axes[0].set_ylabel("gate, ms a step")
    handles, labels = _legend(axes)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)), frameon=False)
    return Drawing(
        name="bench",
        title="What the gate costs",
        caption=(
            "Time of a step beyond SGD's, both axes logarithmic; against parameters, all models that were measured. "
            f"{results.setting}."
        ),
        alt="; ".join(f"{_say(row)}: {row.extra_ms:.2f} ms" for row in gated),
        figure=figure,
    )


def _draw(ax: Axes, rows: Sequence[Row], across: Callable[[Row], int], looks: dict[str, tuple[str, str]]) -> None:
    for name, (colour, marker) in looks.items():
        # Where the gate costs less than the noise there is nothing a logarithm could show.
        points = sorted((across(row), row.extra_ms) for row in rows if row.name == name and row.extra_ms > 0)
        if points:
            ax.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=4, linewidth=1.0, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    marks = _marks(sorted({across(row) for row in rows}))
    ax.xaxis.set_major_locator(FixedLocator(marks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.margins(0.1)
    ax.grid(color=MUTED, alpha=0.2, linewidth=0.5)


def _say(row: Row) -> str:
    return f"{row.model}, {row.name}, {row.directions} directions"


def _legend(axes: Sequence[Axes]) -> tuple[list[Artist], list[str]]:
    shown = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    return list(shown.values()), list(shown)


def _varies(rows: Sequence[Row], model: str) -> bool:
    return len({row.directions for row in rows if row.model == model}) > 1


def _most_common(values: Sequence[int]) -> int:
    return max(values, key=values.count, default=0)


def _marks(values: Sequence[int]) -> list[float]:
    """Return the values themselves where they are far enough apart, else round numbers about them."""
    if all(large > 1.5 * small for small, large in pairwise(values)):
        return [float(value) for value in values]
    fine, coarse = (_round_numbers(digits, values[0] / 1.2, 1.2 * values[-1]) for digits in ((1, 2, 5), (1,)))
    return fine if len(fine) <= MOST_MARKS else coarse


def _round_numbers(digits: Sequence[int], low: float, high: float) -> list[float]:
    numbers = (digit * 10.0**decade for decade in range(12) for digit in digits)
    return [number for number in numbers if low <= number <= high]


def _short(value: float) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:g}"
