"""Errors about data, in one or two lines that name the file, the rule and the value."""


class DataError(ValueError):
    """A data file that is not what its publisher wrote, or that could not be downloaded."""


class MissingData(DataError):  # noqa: N818, it says what is the matter
    """A data set that is not in any of the places where it may lie."""


class DownloadError(DataError):
    """A file that no mirror has."""
