"""Checks of what a user gives: each raises a ValueError that names the argument, the rule and the value.

And the error for a library that an extra brings, and that is not there.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any


class MissingLibrary(ImportError):  # noqa: N818, it names what happened
    """A library that an extra brings cannot be imported; from the command line bad usage, exit code 2."""


def check_seed(seed: object) -> None:
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= int(seed) < 2**63:
        raise ValueError(f"`seed` must be a whole number from 0 to 2**63 - 1, got {seed!r}")


def check_count(name: str, value: object) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` must be a whole number of at least 1, got {value!r}")


def check_at_least_zero(name: str, value: object) -> None:
    if not (is_number(value) and 0 <= value < float("inf")):  # type: ignore[operator]
        raise ValueError(f"`{name}` must be a finite number of at least 0, got {value!r}")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}{nearest(value, choices)}")


def check_names(given: Mapping[str, Any], allowed: tuple[str, ...], others: tuple[str, ...] = ()) -> None:
    """Refuse names that are no options; `others` are arguments that may have been meant."""
    for name in given:
        if name not in allowed:
            known = (*others, *allowed)
            raise ValueError(f"`{name}` is no option{nearest(name, known)}; the options are {', '.join(known)}")


def is_number(value: object) -> bool:
    """Tell whether the value is a real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def nearest(value: object, choices: tuple[str, ...]) -> str:
    """A hint at the choice that was probably meant, or nothing."""
    close = get_close_matches(str(value), choices, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def explain_missing(error: ImportError, library: str, user: str, extra: str) -> MissingLibrary:
    """Return the error for what uses a library that cannot be imported: the reason, and what installs it."""
    if isinstance(error, ModuleNotFoundError) and error.name == library:
        reason = f"{library}, which is not installed"
    else:
        reason = f"{library}, whose import failed ({' '.join(str(error).split())[:200]})"
    return MissingLibrary(f"{user} needs {reason}; pip install 'sfao[{extra}]' brings it", name=library)
