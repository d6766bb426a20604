"""Text from outside as text: letters that act on a terminal, or on a page, are shown and not obeyed."""

import re
from typing import Any

#: Controls but tab and newline, ends of lines and paragraphs, turns of the direction, marks of order, lone surrogates.
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]")

#: Letters of a value in an error.
MOST_OF_VALUE = 120


def plain(text: str) -> str:
    r"""Return the text with every letter that acts written as Python writes it, such as `\x1b`."""
    return _ACTING.sub(lambda found: repr(found[0])[1:-1], text)


def join_lines(text: str) -> str:
    """Return the text on one line, without the letters that act."""
    return _ACTING.sub("", " ".join(text.split()))


def shorten(text: str, most: int) -> str:
    """Return the text, or its beginning and its end where it has more letters than `most`."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]} ... {text[-end:]}"


def quote(value: Any, most: int = MOST_OF_VALUE) -> str:
    """Return a value as Python writes it, shortened."""
    try:
        return shorten(repr(value), most)
    except ValueError:  # more digits than Python writes
        return f"a value of type {type(value).__name__} that is too long to show"
