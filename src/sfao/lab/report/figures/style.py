"""The shared look of all figures: size, ink, colours that colour-blind readers can tell apart, rows of panels."""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar
from unicodedata import east_asian_width

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

#: Inches; one width for all, so that text has one size wherever figures are scaled to a page.
WIDTH = 7.0
#: Points.
TEXT, SMALL = 8.0, 7.0

#: Text and axes; grid lines and asides. In a page these become the page's own colours (see formats.py).
INK, MUTED = "#000000", "#6f7071"
#: Text on a coloured cell, which stays as it is when the page turns dark.
ON_LIGHT, ON_DARK = "#101010", "#ffffff"

#: Of middling lightness, to be seen on white and on black; after Okabe and Ito, each with a mark of its own.
METHOD_COLOURS = {
    "sgd": ("#808488", "s"),
    "joint": ("#8a6d3b", "*"),
    "ewc": ("#009e73", "^"),
    "si": ("#3a9bd9", "v"),
    "lwf": ("#5f9e2f", "h"),
    "ogd": ("#0068b0", "D"),
    "agem": ("#cf8a00", "<"),
    "gem": ("#c0608f", ">"),
    "er": ("#a8743a", "d"),
    "derpp": ("#b04a4a", "p"),
    "gpm": ("#7a5fc0", "P"),
    "sgp": ("#4f8f9f", "H"),
    "sfao": ("#d55e00", "o"),
    "drift-bound": ("#b02bb0", "8"),
}
OTHER = ("#808488", "X")

#: From few to many, of one hue, readable in grey.
RAMP = ("#f2f6fa", "#bcd3e8", "#6fa3cc", "#2a6ca8", "#123f70")

#: matplotlib settings; a figure is made under them with the decorator `@rc_context(STYLE)`.
STYLE: dict[Any, Any] = {
    "font.size": TEXT,
    "font.family": "sans-serif",
    "axes.titlesize": TEXT,
    "axes.titlelocation": "left",
    "axes.titlepad": 5.0,
    "axes.labelsize": TEXT,
    "figure.labelsize": TEXT,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}

Item = TypeVar("Item")


def method_colour(row: str) -> str:
    """Return the colour of a row's method: the same in every figure."""
    return METHOD_COLOURS.get(row.split(" ")[0], OTHER)[0]


def method_marker(row: str) -> str:
    return METHOD_COLOURS.get(row.split(" ")[0], OTHER)[1]


def panels(
    count: int, *, columns: int, height: float, share_x: bool = False, share_y: bool = True, apart: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `count` axes in rows of at most `columns`, each `height` inches high.

    With `apart`, every one has the numbers of its axes, as a page may show it alone.
    """
    columns = min(columns, count)
    rows = -(-count // columns)
    # Some room at the edges: a page may write in a wider font than the one measured with.
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    figure = Figure(figsize=(WIDTH, rows * height), layout=layout)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y, sharex=share_x)
    axes: list[Axes] = list(np.asarray(grid).flat)
    for extra in axes[count:]:
        extra.remove()
    for number, each in enumerate(axes[:count]):
        each.tick_params(labelbottom=apart or number + columns >= count)
        if apart:
            each.tick_params(labelleft=True)
    return figure, axes[:count]


def most_panels(tasks: int) -> int:
    """Return the number of panels of tasks x tasks numbers that can be read side by side, and sent in a page."""
    return max(2, min(12, 2500 // tasks**2))


def pick_evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` items, evenly spaced from first to last."""
    if len(items) <= most:
        return list(items)
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]


def pick_with(wanted: Collection[Item], items: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` items in their order: those that are wanted, and others evenly spaced between them."""
    if len(items) <= most:
        return list(items)
    kept = [item for item in items if item in wanted][:most]
    others, room = [item for item in items if item not in kept], most - len(kept)
    kept += pick_evenly(others, room) if room > 1 else others[:room]
    return [item for item in items if item in kept]


def and_more(left_out: int, what: str) -> str:
    """` and 23 more layers`; empty when nothing was left out."""
    return f" And {left_out} more {what}{'s' * (left_out > 1)}, not shown." if left_out else ""


def columns_for(count: int, tasks: int) -> int:
    """Return the number of columns for panels of tasks x tasks numbers, in full rows where possible."""
    widest = 4 if tasks <= 10 else 3
    return min(count, 3 if count in (5, 6, 9) else widest)


def title_of(row: str, layer: str) -> str:
    """Return a title on one line where a third of the width has room for it."""
    line = f"{shorten(row, 32)} · {shorten(layer, 32)}"
    return line if len(line) <= 32 else f"{shorten(row, 32)}\n{shorten(layer, 32)}"


def ink_on(colour: tuple[float, ...]) -> str:
    """Return the ink with the higher contrast on a colour, by the rules for pages (WCAG)."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3])
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return ON_DARK if 1.05 / (light + 0.05) > (light + 0.05) / 0.0552 else ON_LIGHT


def make_legible(text: str) -> str:
    """Replace what neither a font nor XML has: folders, and records that were edited, may hold any name."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def shorten(text: str, most: int = 26) -> str:
    """Return the start and the end of a name: both tell rows apart, which are named by their settings."""
    text = make_legible(text.replace("options.", "").replace("\n", " "))
    if _measure(text) <= most:
        return text
    start, end = _cut(text, most // 2 - 1), _cut(text[::-1], most // 2)[::-1]
    return f"{start}…{end}"


def _measure(text: str) -> int:
    """Return the width in letters: those of East Asia, and emoji, take the room of two."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _cut(text: str, most: int) -> str:
    """Return as much of the start as has room."""
    end = next((end for end in range(len(text)) if _measure(text[: end + 1]) > most), len(text))
    return text[:end]
