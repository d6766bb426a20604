"""Limits on text from outside, and the error for text that breaks one."""

from typing import Any

from sfao.lab.outside_text.plain import quote

#: Of a YAML text and of a setting, in bytes: complete settings take about one thousand.
MOST_YAML = 2**18
#: Of a JSON file, and of one of its lines where each is read on its own.
MOST_JSON, MOST_LINE = 2**26, 2**24
#: How deep lists and mappings may lie in one another.
MOST_DEPTH = 50
#: The values of a YAML text, each counted wherever an alias repeats it.
MOST_VALUES = 5_000
#: Whole numbers must be smaller in size.
MOST_WHOLE = 2**64


class OutsideTextError(ValueError):
    """Text that cannot be taken: the rule that it breaks and what was found."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line

    def at(self, file: object) -> str:
        """Return the message after the file and, where it is known, the line."""
        return f"{file}: {self.reason}" if self.line is None else f"{file}:{self.line}: {self.reason}"


def check_depth(depth: int, line: int | None = None) -> None:
    if depth > MOST_DEPTH:
        raise OutsideTextError(f"must be at most {MOST_DEPTH} levels deep, got more", line)


def check_count(values: int, line: int | None = None) -> None:
    if values > MOST_VALUES:
        raise OutsideTextError(f"must hold at most {MOST_VALUES:,} values, aliases included, got more", line)


def check_whole(number: int, line: int | None = None) -> int:
    if abs(number) >= MOST_WHOLE:
        raise OutsideTextError(f"must hold whole numbers below 2**64 in size, got {quote(number)}", line)
    return number


def check_text(text: str, line: int | None = None) -> str:
    """Refuse half of a pair of surrogates, which no file can hold."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise OutsideTextError(f"must hold whole characters, got {quote(text)}", line) from None
    return text


def check_length(length: int, most: int) -> None:
    if length > most:
        raise OutsideTextError(f"must have at most {most:,} bytes, got more")


def check_values(value: Any) -> None:
    """Check depth, whole numbers and texts of what was read."""
    waiting = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict):
            check_depth(depth)
            waiting += [(one, depth + 1) for pair in each.items() for one in pair]
        elif isinstance(each, list):
            check_depth(depth)
            waiting += [(one, depth + 1) for one in each]
        elif isinstance(each, str):
            check_text(each)
        elif isinstance(each, int):
            check_whole(each)
