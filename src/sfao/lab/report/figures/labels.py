"""Labels beside points, where they cover neither points nor one another."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from sfao.lab.report.figures.style import MUTED, SMALL

#: (dx, dy) in points and how the text hangs there.
Spot = tuple[float, float, str, str]
#: The two ends of a line that runs along the axes.
Line = tuple[tuple[float, float], tuple[float, float]]


def _around(distance: float) -> list[Spot]:
    """Return spots at this distance, in all directions."""
    across, up = {-1: "right", 0: "center", 1: "left"}, {-1: "top", 0: "center", 1: "bottom"}
    return [(distance * x, distance * y, across[x], up[y]) for y in (1, 0, -1) for x in (1, 0, -1) if x or y]


#: Right, left, above, below, then further off.
_SPOTS: list[Spot] = [
    (6.0, 0.0, "left", "center"),
    (-6.0, 0.0, "right", "center"),
    (0.0, 6.0, "center", "bottom"),
    (0.0, -6.0, "center", "top"),
    (6.0, 7.0, "left", "bottom"),
    (6.0, -7.0, "left", "top"),
    (-6.0, 7.0, "right", "bottom"),
    (-6.0, -7.0, "right", "top"),
    *(spot for distance in (16.0, 26.0, 38.0, 52.0, 68.0) for spot in _around(distance)),
]
#: Points from which on a line leads from the label to its point.
_FAR = 12.0
_SIZE_OF_A_POINT = 8.0


def place_labels(
    ax: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    colour: str,
    avoid: Sequence[Line] = (),
    gids: Sequence[str | None] = (),
) -> None:
    """Give each point the first spot that is free, or the one that covers least of points, labels and lines.

    `avoid` are those lines, `gids` the ids of the labels in a picture.
    """
    figure = ax.get_figure(root=True)
    if figure is None:
        raise ValueError("`ax` must be in a figure, got axes without one")
    figure.draw_without_rendering()  # settles the layout, and so where the points are
    scale = figure.dpi / 72
    centres = ax.transData.transform(points)
    half = _SIZE_OF_A_POINT * scale / 2
    taken = [Bbox([centre - half, centre + half]) for centre in centres]
    taken += [_surround(ax.transData.transform(line)) for line in avoid]
    inside = ax.get_window_extent()
    for number, (point, text) in enumerate(zip(points, texts, strict=True)):
        trial = _label(ax, text, point, colour, _SPOTS[0])
        best: tuple[float, Spot, Bbox] | None = None
        for spot in _SPOTS:
            _hang(trial, spot)
            box = trial.get_window_extent()
            covered = sum(_overlap(box, other) for other in taken) + 2 * (_area(box) - _overlap(box, inside))
            if best is None or covered < best[0] - 1e-6:
                best = covered, spot, box
            if covered == 0:
                break
        trial.remove()
        if best is not None:
            _label(ax, text, point, colour, best[1]).set_gid(gids[number] if gids else None)
            taken.append(best[2])


def _label(ax: Axes, text: str, point: tuple[float, float], colour: str, spot: Spot) -> Annotation:
    far = max(abs(spot[0]), abs(spot[1])) > _FAR
    line = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3} if far else None
    label = ax.annotate(
        text,
        point,
        (0, 0),
        textcoords="offset points",
        size=SMALL,
        color=colour,
        annotation_clip=False,
        arrowprops=line,
    )
    label.set_in_layout(False)
    _hang(label, spot)
    return label


def _surround(ends: NDArray[np.float64]) -> Bbox:
    """Return the box about a line, which keeps labels off it."""
    return Bbox([ends.min(axis=0) - 1, ends.max(axis=0) + 1])


def _hang(label: Annotation, spot: Spot) -> None:
    dx, dy, across, up = spot
    label.set_position((dx, dy))
    label.set(ha=across, va=up)


def _overlap(one: Bbox, other: Bbox) -> float:
    common = Bbox.intersection(one, other)
    return 0.0 if common is None else _area(common)


def _area(box: Bbox) -> float:
    return float(box.width * box.height)
