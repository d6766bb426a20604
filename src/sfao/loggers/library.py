"""Libraries that are imported when a logger is used, and the fix where one is absent."""

from importlib import import_module


class MissingLibrary(ImportError):  # noqa: N818, it names what happened
    """A library that a logger needs cannot be imported: bad usage, exit code 2."""


def check_libraries(logger: str, libraries: tuple[str, ...]) -> None:
    """Import the libraries of a logger, or say which one is absent and how to install it."""
    for library in libraries:
        try:
            import_module(library)
        except ImportError as error:
            why = " ".join(str(error).split())[:200]
            raise MissingLibrary(
                f"the logger {logger!r} needs the library {library} ({why}): pip install 'sfao[{logger}]'"
            ) from error
