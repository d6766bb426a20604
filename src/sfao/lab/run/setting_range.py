"""The range of the numbers in settings: beyond it, they are no numbers of a tensor any more."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sfao.checks import is_number
from sfao.lab.run.setting_errors import find_place

#: The largest sizes; a float32 goes on to 3e38, so that a number may still be multiplied.
MOST, MOST_WHOLE = 1e38, 10**15
#: Settings with a range of their own.
APART = ("seed",)


def check_range(settings: Mapping[str, Any], file: Path | None) -> None:
    """Raise a ValueError for the first number, at any depth, that is too large; it names the setting and its line."""
    for path, value in _list_numbers(settings):
        most = MOST_WHOLE if isinstance(value, int) else MOST
        if not abs(value) <= most and path[:1] != APART:
            name = ".".join(path)
            raise ValueError(f"{find_place(file, path)}`{name}` must be at most {most:g} in size, got {value:g}")


def _list_numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _list_numbers(each, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _list_numbers(each, path)
    elif is_number(value):
        yield path, value
