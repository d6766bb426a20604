"""Reports of how far a long piece of work is, for a progress bar."""

from typing import Protocol


class Progress(Protocol):
    """A function that is called with each report."""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Report that `done` of `total` bytes or files are finished; the total is None when it is not known."""


def ignore_progress(what: str, done: int, total: int | None) -> None:
    """Show nothing."""
