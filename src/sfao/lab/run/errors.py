"""Errors of a run: settings and folders that are refused before it starts, and its early ends."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class ConfigError(ValueError):
    """A setting that breaks its rule: bad usage, exit code 2."""


class FolderError(RuntimeError):
    """An output folder that holds something else, or is in use: bad usage, exit code 2."""


class ReportError(ValueError):
    """No runs, a run that cannot be read, or a folder that must not be written to: bad usage, exit code 2."""


class Diverged(Exception):  # noqa: N818, it names what happened
    """Losses or outputs are no longer finite numbers."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if a device, or torch on the CPU, had no memory left."""
    lacks = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error).lower() for text in lacks)
    )


class SharpForgetting(Exception):  # noqa: N818, it names what happened
    """Forgetting rose too sharply: the guard goes back."""

    def __init__(self, reason: str, values: dict[str, float]) -> None:
        super().__init__(reason)
        self.values = values


class NotDeterministic(RuntimeError):  # noqa: N818, it names what is wrong
    """An operation of a deterministic run has no deterministic form: the run fails, exit code 1."""


class Interrupted(Exception):  # noqa: N818, it is no error
    """The runs were asked to stop: exit code 130. Their states are saved, but for those in `unsaved`, {run: reason}."""

    def __init__(self, unsaved: Mapping[str, str] | None = None) -> None:
        super().__init__("the run was asked to stop")
        self.unsaved = dict(unsaved or {})

    def describe(self, then: str) -> str:
        """Return in a line what is saved and what is lost, and what to do `then`."""
        if not self.unsaved:
            return f"interrupted; the state is saved, {then}"
        lost = ", ".join(f"{name} ({reason})" for name, reason in list(self.unsaved.items())[:3])
        more = f" and {len(self.unsaved) - 3} more" if len(self.unsaved) > 3 else ""
        return f"interrupted; saved, but for the steps since the last checkpoint of {lost}{more}; {then}"


@contextmanager
def reraise_as(kind: type[Exception], prefix: str = "") -> Iterator[None]:
    """Turn a ValueError into another error with the same message, after `prefix`."""
    try:
        yield
    except ValueError as error:
        raise kind(f"{prefix}{error}") from error
