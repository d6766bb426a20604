"""A rank that is gone: what backends say of it, in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

#: What backends say when another rank does not answer.
SIGNS = ("connection", "timed out", "timeout", "peer", "aborted", "remote process")


class LostRank(RuntimeError):  # noqa: N818, it names what has happened
    """Another rank has gone, or does not answer: this one cannot go on."""


def is_loss(error: BaseException) -> bool:
    """Tell whether an error is a backend's that says so."""
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in said for sign in SIGNS)


def describe_loss(what: str, error: BaseException) -> LostRank:
    """Return the error to raise where `what` could not be exchanged."""
    reason = str(error).strip().partition("\n")[0].partition(". ")[0]
    return LostRank(
        f"another rank must have ended or hangs: {what} could not be exchanged ({reason}). Start all ranks again from "
        "the last checkpoint"
    )


@contextmanager
def explain_loss(what: str) -> Iterator[None]:
    """Turn what a backend says when another rank is gone into one line."""
    try:
        yield
    except LostRank:
        raise
    except RuntimeError as error:
        if not is_loss(error):
            raise
        raise describe_loss(what, error) from error
