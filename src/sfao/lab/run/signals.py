"""The signals that ask a run to stop, as far as the system has them: Windows has neither SIGHUP nor signal masks."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

#: Ctrl-C, a plain `kill`, and a terminal that is closed.
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_CAN_BLOCK = hasattr(signal, "pthread_sigmask")


@contextmanager
def block_signals() -> Iterator[None]:
    """Block the signals; a child that starts meanwhile begins with them blocked."""
    if not _CAN_BLOCK:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_signals() -> None:
    """Receive the signals again that the parent had blocked."""
    if _CAN_BLOCK:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
