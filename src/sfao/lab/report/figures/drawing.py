"""A figure with the words that go with it, and with the values that its places stand for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from sfao.lab.report.figures.style import make_legible

#: The id of what is drawn of several seeds: a page hides it while it draws it anew for those that a reader chose.
OVER_SEEDS = "over-seeds"
#: The attribute by which a page finds it.
OVER_SEEDS_TAG = {"data-over": "seeds"}


@dataclass(frozen=True)
class Mark:
    """A place that has a value to tell: its middle and its size in the units of the axes, no size for a point."""

    x: float
    y: float
    text: str
    width: float = 0.0
    height: float = 0.0
    #: What it is of; empty where that is what its panel is of.
    row: str = ""
    seed: int | None = None


@dataclass(frozen=True)
class Panel:
    """One plot of a drawing, and what it is of, by which readers filter; empty where that is several."""

    ax: Axes
    row: str = ""
    layer: str = ""
    seed: int | None = None
    marks: Sequence[Mark] = ()
    #: What a page draws this panel anew from, beside the results of runs: see `page/drawings.js`.
    redraw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawing:
    #: Its file name without an ending; unique in a report.
    name: str
    title: str
    caption: str
    #: A sentence with the numbers, for people who cannot see it.
    alt: str
    figure: Figure
    #: What a page may show one by one; none where the figure is one picture.
    panels: Sequence[Panel] = ()
    #: What the axes are that all panels share, and that are not written at each.
    axes: str = ""
    #: {gid of artists: what they are of}, as attributes of their elements in a page.
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: {OVER_SEEDS: OVER_SEEDS_TAG})
    #: What all panels are drawn anew from, and its kind; empty where a page cannot draw them.
    redraw: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in self.figure.findobj(Text):
            if isinstance(text, Text):
                text.set_text(make_legible(text.get_text()))
        for number, panel in enumerate(self.panels):
            panel.ax.set_gid(name_panel(number))
        # Each drawing of a figure lays it out again, from where the last one left it: the second would differ.
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")


def name_panel(number: int) -> str:
    """Return the id of a panel's group in a picture."""
    return f"panel-{number}"
