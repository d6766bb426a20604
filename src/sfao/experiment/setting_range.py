"""The range of the numbers in settings: beyond it, products of them are no numbers of a tensor any more."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sfao.checks import is_number
from sfao.experiment.setting_errors import find_place

#: The largest size: its square is a float32.
MOST = 10**15
#: Settings with a range of their own.
APART = ("seed",)


def check_range(settings: Mapping[str, Any], file: Path | None) -> None:
    """Raise a ValueError for the first number, at any depth, that is too large; it names the setting and its line."""
    for path, value in _list_numbers(settings):
        if not abs(value) <= MOST and path[:1] != APART:
            raise ValueError(f"{find_place(file, path)}`{'.'.join(path)}` must be at most 1e15 in size, got {value:g}")


def _list_numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _list_numbers(each, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _list_numbers(each, path)
    elif is_number(value):
        yield path, value
