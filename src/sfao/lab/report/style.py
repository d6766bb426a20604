"""The look of all figures, and a figure as SVG, PDF or PNG."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import Any, TypeVar

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from sfao.lab.console import join_lines

#: Inches; one width for all, so that text has one size wherever figures are scaled to a page.
WIDTH = 7.0
#: Points.
TEXT, SMALL = 8.0, 7.0
#: Text and axes; grid lines and asides.
INK, MUTED = "#1d2126", "#6f7071"
#: Text on a light and on a dark cell.
ON_LIGHT, ON_DARK = "#101010", "#ffffff"
#: Color and marker of each method, after Okabe and Ito: seen on white and on black.
METHOD_COLORS = {
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
    "trgp": ("#7f7f2f", "X"),
    "sfao": ("#d55e00", "o"),
    "drift-bound": ("#b02bb0", "8"),
}
OTHER = ("#808488", "X")
#: From few to many, of one hue, readable in grey.
RAMP = ("#f2f6fa", "#bcd3e8", "#6fa3cc", "#2a6ca8", "#123f70")
#: matplotlib settings: decorate a function that makes a figure with `@rc_context(STYLE)`.
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
    "grid.color": MUTED,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
}
#: Ink on paper for an SVG of its own, in light and dark.
_THEMES = "svg{color:#1d2126;background:#fff}@media(prefers-color-scheme:dark){svg{color:#e4e2dd;background:#16181b}}"

Item = TypeVar("Item")


@dataclass(frozen=True)
class Drawing:
    """A figure and the words that belong to it."""

    #: Its file name without an ending; unique in a report.
    name: str
    title: str
    caption: str
    #: A sentence with the numbers, for people who cannot see it.
    alt: str
    figure: Figure

    def __post_init__(self) -> None:
        for text in self.figure.findobj(Text):
            if isinstance(text, Text):
                text.set_text(make_legible(text.get_text()))
        # Every drawing moves the layout a little: settle it once, so that all formats show the same.
        with _ignore_missing_glyphs():
            self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")


def panels(
    count: int, *, columns: int, height: float, sharex: bool = False, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `count` axes in rows of at most `columns`, each `height` inches high.

    `sharex` and `sharey` are those of `Figure.subplots`; every panel keeps its numbers.
    """
    columns = min(columns, count)
    rows = -(-count // columns)
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    figure = Figure(figsize=(WIDTH, rows * height), layout=layout)
    axes: list[Axes] = list(
        np.asarray(figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)).flat
    )
    for extra in axes[count:]:
        extra.remove()
    for ax in axes[:count]:
        ax.tick_params(labelbottom=True, labelleft=True)
    return figure, axes[:count]


def color_of(row: str) -> str:
    """Return the color of a row's method: the same in every figure."""
    return METHOD_COLORS.get(row.split(" ")[0], OTHER)[0]


def marker_of(row: str) -> str:
    return METHOD_COLORS.get(row.split(" ")[0], OTHER)[1]


def text_color_on(color: Sequence[float]) -> str:
    """Return the text color with the higher contrast on a color."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color[:3])
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return ON_DARK if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.0552 else ON_LIGHT


def pick_evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` items, evenly spaced from first to last."""
    if len(items) <= most:
        return list(items)
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]


def and_more(left_out: int, noun: str) -> str:
    """Return ` And 23 more layers, not shown.`; empty when nothing was left out."""
    return f" And {left_out} more {noun}{'s' * (left_out > 1)}, not shown." if left_out else ""


def make_legible(text: str) -> str:
    """Replace what neither a font nor XML has: records may hold any name."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def shorten(text: str, most: int = 26) -> str:
    """Return the start and the end of a name: both tell rows apart, which are named by their settings."""
    text = make_legible(join_lines(text.replace("options.", "")))
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most // 2) :]}"


# -- Formats ---------------------------------------------------------------------------------------------------------


def as_pdf(drawing: Drawing) -> bytes:
    """Return a PDF, the same bytes for the same drawing."""
    return _save(drawing, "pdf", {"CreationDate": None, "Title": drawing.title})


def as_png(drawing: Drawing) -> bytes:
    """Return a PNG on white."""
    return _save(drawing, "png", {"Title": drawing.title})


def as_picture(drawing: Drawing) -> str:
    """Return an SVG with text as text that needs nothing beside it and follows the light or dark system theme."""
    text = _save(drawing, "svg", {"Date": None}).decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'"[^"]*"', _round_numbers, text.replace(INK, "currentColor"))
    text = re.sub(r">\s+<", "><", text)
    head = f'<svg role="img"{{}}><title>{escape(make_legible(drawing.alt))}</title><style>{_THEMES}</style>'
    return re.sub(r"<svg([^>]*)>", lambda found: head.replace("{}", found[1], 1), text, count=1)


def _round_numbers(attribute: re.Match[str]) -> str:
    """Round to hundredths of a point, which is finer than any screen and a quarter of the size."""
    rounded = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", attribute[0])
    return " ".join(rounded.split())


#: {ending of a file: function that makes its content}
FORMATS: dict[str, Callable[[Drawing], bytes]] = {
    "pdf": as_pdf,
    "png": as_png,
    "svg": lambda drawing: as_picture(drawing).encode(),
}


def _save(drawing: Drawing, form: str, metadata: dict[str, Any]) -> bytes:
    file = BytesIO()
    # Type 42 fonts keep the text of a PDF searchable; some publishers refuse the default, type 3.
    fixed: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": drawing.name, "pdf.fonttype": 42}
    paper = "white" if form == "png" else "none"
    with matplotlib.rc_context(fixed), _ignore_missing_glyphs():
        drawing.figure.savefig(file, format=form, metadata=metadata, facecolor=paper, dpi=200)
    return file.getvalue()


@contextmanager
def _ignore_missing_glyphs() -> Iterator[None]:
    """Ignore warnings of letters that no font here has: a name may have any."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph|Matplotlib currently")
        yield
