"""The system calls by which files are written, counted, and the n-th of them made to fail or to be the last."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Calls of `os`, and writing to a file that is open.
CALLS = ("open", "fsync", "replace", "unlink", "mkdir")
WRITE = "write"

#: Called with the number of each call, from 1, and its name, before it is made.
Hook = Callable[[int, str], None]


@contextmanager
def hook_calls(hook: Hook) -> Iterator[list[str]]:
    """Call the hook before every such call, and yield the names of those made so far."""
    true = {name: getattr(os, name) for name in (*CALLS, "fdopen")}
    made: list[str] = []

    def note(name: str) -> None:
        made.append(name)
        hook(len(made), name)

    def make(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            note(name)
            return true[name](*arguments, **named)

        return call

    def fdopen(descriptor: int, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        # Without a buffer, writing is the system call.
        opened = true["fdopen"](descriptor, mode, *arguments, **named)
        return _Noting(opened, note) if "b" in mode and mode != "rb" else opened

    try:
        for name in CALLS:
            setattr(os, name, make(name))
        os.fdopen = fdopen
        yield made
    finally:
        for name, call in true.items():
            setattr(os, name, call)


class _Noting:
    """A file whose writes are noted, and done at once."""

    def __init__(self, file: Any, note: Callable[[str], None]) -> None:
        self._file, self._note = file, note

    def write(self, data: bytes) -> int:
        self._note(WRITE)
        written: int = self._file.write(data)
        self._file.flush()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_Noting":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
