"""The laboratory: everything behind the command `sfao`, and from Python `compare`, `make_stream` and `make_method`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfao.lab.api import Result, compare, make_method, make_stream

__all__ = ["Result", "compare", "make_method", "make_stream"]


def __getattr__(name: str) -> Any:
    # Imported when first used: `sfao --help` must not wait for torch, and loggers need no extra.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("sfao.lab.api"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
