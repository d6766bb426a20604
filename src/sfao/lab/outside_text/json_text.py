"""The one reader of JSON from outside: files, and lines that are each a value."""

import json
import re
from math import isfinite
from pathlib import Path
from typing import Any

from sfao.lab.outside_text.files import decode, read_text
from sfao.lab.outside_text.limits import MOST_DEPTH, MOST_JSON, OutsideTextError, check_length, check_values
from sfao.lab.outside_text.plain import quote, shorten

#: What ordinary texts do not have, and what is looked at value by value where it is there: whole numbers of 19 digits
#: and escapes of surrogates.
_SUSPICIOUS = re.compile(r"[0-9]{19}|\\u[dD][89a-fA-F]")


def read_json(path: Path, *, finite: bool = True) -> Any:
    """Return the value in a file; raise an OutsideTextError where it breaks a rule or a limit.

    With `finite`, NaN and numbers beyond all floats are refused; without, they are read as Python writes them.
    """
    return parse_json(read_text(path, MOST_JSON), finite=finite)


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """Return the value in a text, by the same rules."""
    check_length(len(text), MOST_JSON)
    text = decode(text) if isinstance(text, bytes) else text
    try:
        value = (_FINITE if finite else _ANY).decode(text)
    except OutsideTextError:
        raise
    except RecursionError:
        raise OutsideTextError(f"must be at most {MOST_DEPTH} levels deep, got more") from None
    except ValueError as error:  # of the text, or of a number with more digits than Python reads
        raise OutsideTextError(f"must be JSON: {shorten(str(error), 200)}") from None
    if text.count("[") + text.count("{") > MOST_DEPTH or _SUSPICIOUS.search(text):
        check_values(value)
    return value


def _make_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise OutsideTextError(f"{quote(twice)} must be there once, got it again")
    return made


def _refuse_constant(text: str) -> float:
    raise OutsideTextError(f"must hold finite numbers, got {text}")


def _read_finite(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _refuse_constant(shorten(text, 40))


# Made once: lines of telemetry are many.
_ANY = json.JSONDecoder(object_pairs_hook=_make_mapping)
_FINITE = json.JSONDecoder(object_pairs_hook=_make_mapping, parse_constant=_refuse_constant, parse_float=_read_finite)
