"""Errors about data, in one or two lines that name the file, the rule and the value."""


class DataError(ValueError):
    """A data file that is not what it must be."""


class MissingData(DataError):  # noqa: N818
    """A data set that is in none of its places."""


class DownloadError(DataError):
    """A file that no mirror provides."""
