"""The one way to a terminal: what is printed is text, and only what is drawn for its style has any."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import TextColumn
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from sfao.lab.outside_text.plain import plain


class Screen(Console):
    """A console without markup, emoji codes and highlighting, on which letters that act are shown.

    Style is an argument, or a `Text`. So square brackets in a path are square brackets, wherever they are printed: in
    a line, in a table, beside a bar.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(**{**how, "markup": False, "emoji": False, "highlight": False})

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(plain(text), **{**how, "markup": False, "emoji": False, "highlight": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))

    def status(self, status: RenderableType, **how: Any) -> Status:
        return _PlainStatus(make_text(status), console=self, **how)


class _PlainStatus(Status):
    """What is being done, as text."""

    def update(self, status: RenderableType | None = None, **how: Any) -> None:
        super().update(None if status is None else make_text(status), **how)


def make_text(text: RenderableType, style: str = "") -> RenderableType:
    """Return text with a style; what is no text is returned as it is."""
    return Text(plain(text), style) if isinstance(text, str) else text


def make_text_column(form: str) -> TextColumn:
    """Return the column of a bar in which `form` is filled in, as text."""
    return TextColumn(form, markup=False)
