"""One-line messages for settings that break their rule."""

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sfao.checks import nearest
from sfao.lab.console import quote
from sfao.lab.safe_io import find_lines

Keys = tuple[str, ...]


def explain_error(error: ValidationError, values: Any, file: Path | None, prefix: Keys, known: Keys) -> str:
    """Describe the first error in `values`: the field, the rule, the value and, if it is from a file, the line."""
    complaints = [(_keys(each, values), each) for each in error.errors()]
    keys, first = complaints[0]
    # A value of several types has a complaint from each; the one that got furthest into it knows best.
    keys, first = max((one for one in complaints if one[0][:1] == keys[:1]), key=lambda one: len(one[0]))
    path = (*prefix, *keys)
    message = first["msg"].removeprefix("Value error, ")
    where = find_place(file, path, message)
    if first["type"] == "extra_forbidden":
        return f"{where}`{'.'.join(path)}` is no setting{nearest(path[-1], known)}"
    if first["type"] == "value_error":  # a check of our own: it names argument, rule and value
        return where + message
    rules = dict.fromkeys(each["msg"].removeprefix("Input should be ") for own, each in complaints if own == keys)
    said = message if len(rules) == 1 else f"Input should be {' or '.join(rules)}"
    return f"{where}`{'.'.join(path)}`: {said[0].lower()}{said[1:]}, got {quote(first['input'])}"


def _keys(complaint: ErrorDetails, values: Any) -> Keys:
    """Return the keys of the wrong value, without the type names that pydantic inserts, such as `order.str`."""
    if complaint["type"] == "missing":
        return tuple(map(str, complaint["loc"]))
    found = []
    for part in complaint["loc"]:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            continue
        found.append(str(part))
    return tuple(found)


def find_place(file: Path | None, path: Keys, message: str = "") -> str:
    """Return `file:line: ` of the setting that the message names, else of the path; empty if the file has neither."""
    if file is None:
        return ""
    lines = find_lines(file)
    named = re.search(r"`([\w.]+)", message)
    inner = tuple(named[1].split(".")) if named else ()
    path = tuple(key for key in path if not key.isdecimal())  # an item of a list stands at the line of the list
    line = next((lines[each] for each in ((*path, *inner), inner, path) if each in lines), None)
    return "" if line is None else f"{file}:{line}: "
