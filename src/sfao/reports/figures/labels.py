"""Labels beside points, where they cover neither points nor one another."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from sfao.reports.figures.style import SMALL

#: (dx, dy) in points and how the text hangs there: right, left, above, below, then further off.
_SPOTS = [
    (6.0, 0.0, "left", "center"),
    (-6.0, 0.0, "right", "center"),
    (0.0, 6.0, "center", "bottom"),
    (0.0, -6.0, "center", "top"),
    (6.0, 7.0, "left", "bottom"),
    (6.0, -7.0, "left", "top"),
    (-6.0, 7.0, "right", "bottom"),
    (-6.0, -7.0, "right", "top"),
    (0.0, 16.0, "center", "bottom"),
    (0.0, -16.0, "center", "top"),
]
_SIZE_OF_A_POINT = 8.0


def place_labels(
    ax: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    colour: str,
    avoid: Sequence[tuple[float, float]] = (),
) -> None:
    """Give each point the first spot that is free, or the one that covers least of points, labels and a line.

    `avoid` are the corners of that line.
    """
    figure = ax.get_figure(root=True)
    if figure is None:
        raise ValueError("`ax` must be in a figure, got axes without one")
    figure.draw_without_rendering()  # settles the layout, and so where the points are
    scale = figure.dpi / 72
    centres = ax.transData.transform(points)
    half = _SIZE_OF_A_POINT * scale / 2
    taken = [Bbox([centre - half, centre + half]) for centre in centres]
    taken += _along(ax.transData.transform(avoid)) if len(avoid) > 1 else []
    inside = ax.get_window_extent()
    for point, text in zip(points, texts, strict=True):
        best: tuple[float, int] | None = None
        label = ax.annotate(
            text, point, (0, 0), textcoords="offset points", size=SMALL, color=colour, annotation_clip=False
        )
        label.set_in_layout(False)
        for number, spot in enumerate(_SPOTS):
            _hang(label, spot)
            box = label.get_window_extent()
            covered = sum(_overlap(box, other) for other in taken) + 2 * (_area(box) - _overlap(box, inside))
            if best is None or covered < best[0] - 1e-6:
                best = covered, number
        if best is not None:
            _hang(label, _SPOTS[best[1]])
        taken.append(label.get_window_extent())


def _along(corners: NDArray[np.float64]) -> list[Bbox]:
    """The boxes of the pieces of a line that runs along the axes."""
    return [Bbox([np.minimum(start, end) - 1, np.maximum(start, end) + 1]) for start, end in pairwise(corners)]


def _hang(label: Annotation, spot: tuple[float, float, str, str]) -> None:
    dx, dy, across, up = spot
    label.set_position((dx, dy))
    label.set(ha=across, va=up)


def _overlap(one: Bbox, other: Bbox) -> float:
    common = Bbox.intersection(one, other)
    return 0.0 if common is None else _area(common)


def _area(box: Bbox) -> float:
    return float(box.width * box.height)
