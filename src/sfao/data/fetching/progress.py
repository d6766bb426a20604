"""How far a long piece of work is, told to whoever wants to show it."""

from typing import Protocol


class Progress(Protocol):
    def __call__(self, what: str, done: int, total: int | None) -> None:
        """`what` is being done; `done` of `total` bytes or files so far, the total None when it is not known."""


def silent(what: str, done: int, total: int | None) -> None:
    """Tell nobody."""
