"""Errors about data, in one or two lines that name the file, the rule and the value."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataError(ValueError):
    """A data file that is not what its publisher wrote, or that could not be downloaded."""


class MissingData(DataError):  # noqa: N818, it says what is the matter
    """A data set that is not in any of the places where it may lie."""


class UnreadableData(DataError):  # noqa: N818, it says what is the matter
    """A data file that cannot be read now, which says nothing about what is in it."""


class DownloadError(DataError):
    """A file that no mirror has."""


@contextmanager
def name_read_errors(folder: Path) -> Iterator[None]:
    """Turn a failure of the machine, a permission, a disk, the memory, into an UnreadableData that names the file."""
    try:
        yield
    except OSError as error:
        raise UnreadableData(f"{error.filename or folder}: could not be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise UnreadableData(f"{folder}: could not be read (out of memory)") from error
