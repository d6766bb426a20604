"""What projecting does to a gradient, drawn from one real step."""

from math import acos, cos, degrees, radians, sin, sqrt
from statistics import median

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.patches import Arc

from sfao.reports.figures.drawing import Drawing
from sfao.reports.figures.gate_looks import Look, gated_rows, looks
from sfao.reports.figures.style import INK, MUTED, SMALL, STYLE, method_colour, panels
from sfao.reports.groups import RunGroup


@rc_context(STYLE)
def update_geometry(group: RunGroup) -> Drawing | None:
    """None when no step was projected."""
    for row, runs in gated_rows(group).items():
        projected = [look for look in looks(runs) if look.projected]
        if projected:
            return _drawing(group, row, typical(projected), len(projected))
    return None


def typical(found: list[Look]) -> Look:
    """The step nearest to the median of both numbers; the first of equals."""
    cosine, kept = median(look.cosine for look in found), median(look.kept for look in found)
    return min(found, key=lambda look: (look.cosine - cosine) ** 2 + (look.kept - kept) ** 2)


def in_plane(look: Look) -> float:
    """The part along Pg of the nearest direction b, which lies in the span: cos(g, b) / |Pg|."""
    return max(-1.0, min(1.0, look.cosine / sqrt(1 - look.kept**2)))


def _drawing(group: RunGroup, row: str, look: Look, count: int) -> Drawing:
    lost, part = sqrt(1 - look.kept**2), in_plane(look)
    figure, (ax,) = panels(1, columns=1, height=3.0)
    _draw(ax, look, lost, part, method_colour(row))
    numbers = (
        f"of the gradient g (length 1) the update u keeps {look.kept:.2f}, the part Pg in the span of the memory, "
        f"{lost:.2f} long, is taken out; the nearest stored direction b has cosine {look.cosine:.2f} with g"
    )
    return Drawing(
        name=group.file_name("update-geometry"),
        title="The geometry of an update",
        caption=(
            f"A real step: {row}, run {look.run.name}, step {look.step}, layer {look.layer}; of {count:,} projected "
            f"steps recorded, the one nearest to their median. The plane of g and u, to scale: {numbers}, of which "
            f"{abs(part):.2f} lies in this plane and the rest is at a right angle to it."
        ),
        alt=f"Arrows in a plane: {numbers}.",
        figure=figure,
    )


def _draw(ax: Axes, look: Look, lost: float, part: float, colour: str) -> None:
    kept, left = look.kept, min(-0.6, part - 0.1)
    ax.axhline(0, color=MUTED, linewidth=0.6, zorder=0)
    ax.plot((lost, lost), (0, kept), color=MUTED, linewidth=0.7, linestyle=(0, (3, 2)))
    ax.plot((0, lost), (kept, kept), color=MUTED, linewidth=0.7, linestyle=(0, (3, 2)))
    # b and Pg lie upon each other: the one below the line, the other on it.
    _arrow(ax, (0, -0.035), (part, -0.035), "#7a5fc0")
    _arrow(ax, (0, 0), (lost, 0), MUTED)
    _arrow(ax, (0, 0), (lost, kept), INK)
    _arrow(ax, (0, 0), (0, kept), colour)
    angle = degrees(acos(lost))
    ax.add_patch(Arc((0, 0), 0.5, 0.5, theta1=0, theta2=angle, color=INK, linewidth=0.7))
    ax.annotate(f"{angle:.0f}°", _at(angle / 2, 0.29), ha="left", va="center", size=SMALL)
    ax.annotate("gradient g, length 1", (lost, kept), (4, 3), textcoords="offset points", va="bottom")
    ax.annotate(
        f"update u = g - Pg\nlength {kept:.2f}", (0, kept), (-5, 0), textcoords="offset points", ha="right", va="top"
    )
    ax.annotate(f"Pg, taken out\nlength {lost:.2f}", (lost, 0), (5, 4), textcoords="offset points", va="bottom")
    ax.annotate(
        f"nearest direction b: cos(g, b) = {look.cosine:.2f}\nits part in this plane is {abs(part):.2f} long",
        (part / 2, -0.035), (0, -5), textcoords="offset points", va="top", ha="center",
    )  # fmt: skip
    ax.annotate("span of the memory", (left, 0), (0, 3), textcoords="offset points", ha="left", color=MUTED, size=SMALL)
    ax.set(xlim=(left, 1.45), ylim=(-0.3, max(kept, 0.5) + 0.15), aspect="equal")
    ax.set_axis_off()


def _at(angle: float, radius: float) -> tuple[float, float]:
    return radius * cos(radians(angle)), radius * sin(radians(angle))


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    style = {"arrowstyle": "-|>,head_length=0.55,head_width=0.22", "color": colour, "linewidth": 1.5}
    ax.annotate("", end, start, arrowprops={**style, "shrinkA": 0, "shrinkB": 0})
