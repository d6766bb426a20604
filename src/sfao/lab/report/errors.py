"""The error of a report that cannot be made."""


class ReportError(ValueError):
    """No runs, or a run that cannot be read: bad usage, exit code 2."""
