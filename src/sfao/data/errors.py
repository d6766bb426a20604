"""What goes wrong with data, in one or two lines that name the file, the rule and what was found."""


class DataError(ValueError):
    """A data file that is not what its publisher wrote, or that could not be got."""


class MissingData(DataError):  # noqa: N818, it says what is the matter
    """No data where it was looked for."""


class DownloadError(DataError):
    """No mirror gave the file."""
