"""A figure with the words that go with it."""

from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.text import Text

from sfao.reports.figures.style import make_legible


@dataclass(frozen=True)
class Drawing:
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
        # Each drawing of a figure lays it out again, from where the last one left it: the second would differ.
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")
