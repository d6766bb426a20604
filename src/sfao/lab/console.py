"""Text from outside on a terminal: control characters are escaped, markup and emoji codes are printed as they are."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import TextColumn

#: Control characters except tab and newline, line separators, changes of direction, byte order marks, lone surrogates.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]")
#: Characters of a value in an error message.
LONGEST_VALUE = 120


def escape_controls(text: str) -> str:
    r"""Return the text with every control character written as Python writes it, such as `\x1b`."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def join_lines(text: str) -> str:
    """Return the text on one line, without control characters."""
    return _CONTROLS.sub("", " ".join(text.split()))


def shorten(text: str, limit: int) -> str:
    """Return the text, or its beginning and its end if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    end = limit // 4
    return f"{text[: limit - end]} ... {text[-end:]}"


def quote(value: Any, limit: int = LONGEST_VALUE) -> str:
    """Return the `repr` of a value, shortened."""
    try:
        return shorten(repr(value), limit)
    except ValueError:  # an integer with more digits than Python writes
        return f"a value of type {type(value).__name__} that is too long to show"


class PlainConsole(Console):
    """A console with markup, emoji codes and highlighting disabled, which escapes control characters.

    A path with square brackets is printed as it is, also in a table and beside a progress bar. To style text, pass
    `style` or a `Text`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "markup": False, "emoji": False, "highlight": False})

    def render_str(self, text: str, **options: Any) -> Text:
        options |= {"markup": False, "emoji": False, "highlight": False}
        return super().render_str(escape_controls(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_controls(segment.text))


def text_column(form: str) -> "TextColumn":
    """Return a column of a progress bar that prints `form`, filled in, without markup."""
    from rich.progress import TextColumn

    return TextColumn(form, markup=False)
