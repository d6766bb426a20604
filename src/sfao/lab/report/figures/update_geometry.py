"""The effect of projecting on a gradient, drawn from one real step."""

from math import acos, cos, degrees, radians, sin, sqrt
from statistics import median
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.patches import Arc

from sfao.lab.report.figures.drawing import Drawing, Panel
from sfao.lab.report.figures.gate_looks import Look, collect_looks, gated_rows
from sfao.lab.report.figures.style import INK, MUTED, SMALL, STYLE, WIDTH, method_colour, panels
from sfao.lab.report.groups import RunGroup


@rc_context(STYLE)
def update_geometry(group: RunGroup) -> Drawing | None:
    """Draw a typical step; None when no step was projected."""
    for row, runs in gated_rows(group).items():
        projected = [look for look in collect_looks(runs) if look.is_projected]
        if projected:
            return _draw_step(group, row, pick_typical_step(projected), len(projected))
    return None


def pick_typical_step(found: list[Look]) -> Look:
    """Return the step nearest to the median of both numbers; the first of equals."""
    cosine, kept = median(look.cosine for look in found), median(look.kept for look in found)
    return min(found, key=lambda look: (look.cosine - cosine) ** 2 + (look.kept - kept) ** 2)


def in_plane(look: Look) -> float:
    """Return the part along Pg of the nearest direction b, which lies in the span: cos(g, b) / |Pg|."""
    return max(-1.0, min(1.0, look.cosine / sqrt(1 - look.kept**2)))


def _draw_step(group: RunGroup, row: str, look: Look, count: int) -> Drawing:
    lost, part = sqrt(1 - look.kept**2), in_plane(look)
    (left, right), (bottom, top) = (min(-0.6, part - 0.35), 1.45), (-0.24, look.kept + 0.16)
    figure, (ax,) = panels(1, columns=1, height=WIDTH * (top - bottom) / (right - left))
    _draw(ax, look, lost, part, method_colour(row), left)
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    numbers = (
        f"of the gradient g (length 1) the update u keeps {look.kept:.2f}, the part Pg in the span of the memory, "
        f"{lost:.2f} long, is taken out; the nearest stored direction b has cosine {look.cosine:.2f} with g"
    )
    return Drawing(
        name=group.file_name("update-geometry"),
        title="The geometry of an update",
        caption=(
            f"A real step: {row}, run {look.run.name}, step {look.step}, layer {look.layer}; of {count:,} projected "
            f"steps recorded, the one nearest to their median. The plane of g and u, to scale: {numbers}; "
            f"{abs(part):.2f} of b lies in this plane, the rest at a right angle to it.{_approximate(look)}"
        ),
        alt=f"Arrows in a plane: {numbers}.",
        figure=figure,
        panels=[Panel(ax, row, look.layer, look.run.record.seed)],
    )


def _approximate(look: Look) -> str:
    if look.run.options.get("projection") != "sequential":
        return ""
    return ' With projection="sequential" u and Pg are not exactly orthogonal: drawn as if they were.'


def _draw(ax: Axes, look: Look, lost: float, part: float, colour: str, left: float) -> None:
    kept = look.kept
    ax.axhline(0, color=MUTED, linewidth=0.6, zorder=0)
    ax.plot((lost, lost), (0, kept), color=MUTED, linewidth=0.7, linestyle=(0, (3, 2)))
    ax.plot((0, lost), (kept, kept), color=MUTED, linewidth=0.7, linestyle=(0, (3, 2)))
    # b and Pg lie on each other: the one below the line, the other on it.
    _arrow(ax, (0, -0.035), (part, -0.035), "#7a5fc0")
    _arrow(ax, (0, 0), (lost, 0), MUTED)
    _arrow(ax, (0, 0), (lost, kept), INK)
    _arrow(ax, (0, 0), (0, kept), colour)
    flat = kept < 0.2  # then the labels of g and u would lie on that of Pg
    below = "top" if flat else "bottom"
    angle = degrees(acos(lost))
    if not flat:
        ax.add_patch(Arc((0, 0), 0.5, 0.5, theta1=0, theta2=angle, color=INK, linewidth=0.7))
        ax.annotate(f"{angle:.0f}°", _at(angle / 2, 0.29), ha="left", va="center", size=SMALL)
    _label(ax, "gradient g, length 1", (lost, kept), (4, 3), va="bottom")
    _label(ax, f"update u = g - Pg\nlength {kept:.2f}", (0, kept), (-5, 0), ha="right", va="bottom" if flat else "top")
    # Beyond the arc when Pg is short.
    _label(
        ax,
        f"Pg, taken out\nlength {lost:.2f}",
        (max(lost, 0.27), 0),
        (5, -4 if flat else 4),
        va=below,
    )
    nearest = f"nearest direction b: cos(g, b) = {look.cosine:.2f}\nits part in this plane is {abs(part):.2f} long"
    _label(ax, nearest, (part / 2, -0.035), (0, -5), ha="center", va="top")
    _label(ax, "span of the memory", (left, 0), (0, -3 if flat else 3), va=below, color=MUTED, size=SMALL)
    ax.set_axis_off()


def _label(ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **how: Any) -> None:
    ax.annotate(text, at, offset, textcoords="offset points", **how)


def _at(angle: float, radius: float) -> tuple[float, float]:
    return radius * cos(radians(angle)), radius * sin(radians(angle))


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    style = {"arrowstyle": "-|>,head_length=0.55,head_width=0.22", "color": colour, "linewidth": 1.5}
    ax.annotate("", end, start, arrowprops={**style, "shrinkA": 0, "shrinkB": 0})
