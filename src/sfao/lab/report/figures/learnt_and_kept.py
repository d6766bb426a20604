"""What each method learns, and what it still knows in the end: the way between is what it forgot."""

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sfao.lab.report.comparison import Group, Row
from sfao.lab.report.figures.drawing import Drawing
from sfao.lab.report.figures.style import INK, MUTED, SMALL, STYLE, method_colour, panels, shorten
from sfao.lab.run.statistics import Spread

#: Points across.
RING, DOT = 6.0, 6.0


@rc_context(STYLE)
def learnt_and_kept(group: Group) -> Drawing | None:
    """Draw one line per method, the most accurate first, and those that store data below a rule."""
    rows = sort_rows(group.rows)
    if not rows:
        return None
    figure, (ax,) = panels(1, columns=1, height=0.9 + 0.2 * len(rows))
    for height, row in enumerate(rows):
        _draw(ax, height, row)
    ranked = sum(not row.is_bound for row in rows)
    if 0 < ranked < len(rows):
        ax.axhline(ranked - 0.5, color=MUTED, linewidth=0.6, linestyle=(0, (2, 2)))
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [_name(row) for row in rows])
    ax.set_xlabel("accuracy, mean over all tasks")
    ax.grid(axis="x", color=MUTED, alpha=0.25, linewidth=0.5)
    figure.legend(handles=_keys(), loc="outside upper left", ncols=3, frameon=False, fontsize=SMALL)
    title = "What is learnt, and what is left in the end"
    return Drawing("learnt-and-kept", title, f"{group.title}.", _describe(rows), figure)


def sort_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have both numbers, bounds last, the most accurate first."""
    shown = [row for row in rows if row.accuracy and row.learnt]
    return sorted(shown, key=lambda row: (row.is_bound, -_mean(row.accuracy)))


def _draw(ax: Axes, height: int, row: Row) -> None:
    colour, learnt, kept = method_colour(row.method), _mean(row.learnt), _mean(row.accuracy)
    std = (row.accuracy.std if row.accuracy else None) or 0.0
    ax.plot([learnt, kept], [height, height], color=colour, linewidth=1.6, alpha=0.55, zorder=1)
    ax.plot([kept - std, kept + std], [height, height], color=colour, linewidth=3.0, zorder=2, solid_capstyle="butt")
    ax.plot(learnt, height, "o", markersize=RING, markerfacecolor="none", markeredgecolor=colour, zorder=3)
    ax.plot(kept, height, "o", markersize=DOT, color=colour, zorder=4)
    ax.annotate(
        f"{kept:.3f}", (1.0, height), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
        va="center", size=SMALL,
    )  # fmt: skip


def _keys() -> list[Line2D]:
    return [
        Line2D([], [], color=INK, marker="o", markersize=RING, markerfacecolor="none", linestyle="none",
               label="on each task just after it was learnt"),
        Line2D([], [], color=INK, marker="o", markersize=DOT, linestyle="-", linewidth=3.0,
               label="after the last task, with spread over seeds"),
        Line2D([], [], linestyle="none", label="at the right: after the last task"),
    ]  # fmt: skip


def _name(row: Row) -> str:
    name = shorten(row.method, 40)
    return f"{name} (stores data)" if row.stores_data else name


def _mean(spread: Spread | None) -> float:
    return spread.mean if spread else 0.0


def _describe(rows: Sequence[Row]) -> str:
    told = [f"{_name(row)} {_mean(row.learnt):.3f}, then {_mean(row.accuracy):.3f}" for row in rows]
    return f"Accuracy when learnt and after the last task: {'; '.join(told)}."
