"""Checks of arguments: each raises a ValueError that names the argument, the rule and the value."""

from difflib import get_close_matches
from numbers import Integral, Real


class MissingLibrary(ImportError):  # noqa: N818, it names what happened
    """A library of an extra can't be imported."""


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


def is_number(value: object) -> bool:
    """Return True for a real number, except True and False."""
    return isinstance(value, Real) and not isinstance(value, bool)


def nearest(value: object, choices: tuple[str, ...]) -> str:
    """Return a hint at the choice that was probably meant, or an empty string."""
    close = get_close_matches(str(value), choices, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def explain_missing(error: ImportError, library: str, user: str, extra: str) -> MissingLibrary:
    """Return the error for a library that can't be imported: why, and what installs it."""
    if isinstance(error, ModuleNotFoundError) and error.name == library:
        reason = f"{library}, which is not installed"
    else:
        reason = f"{library}, whose import failed ({' '.join(str(error).split())[:200]})"
    return MissingLibrary(f"{user} needs {reason}; pip install 'sfao[{extra}]' brings it", name=library)
