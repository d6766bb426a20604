"""What can be wrong with what a report is asked of."""


class ReportError(ValueError):
    """No runs, or a run that cannot be read: bad usage, exit code 2."""
