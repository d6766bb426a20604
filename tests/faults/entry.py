"""The command `sfao` in this process, from its entry point, with what it printed."""

import io
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from traceback import format_exc
from typing import Any
from unicodedata import category
from unittest.mock import patch

from typer.main import get_command

from sfao.lab.cli import main
from sfao.lab.cli.app import app
from sfao.lab.run.jobs import Failure, Job
from sfao.lab.run.pool import Assignment, do_run
from sfao.lab.run.record import Record

#: The exit codes that the command documents; no attack here interrupts.
DOCUMENTED = (0, 1, 2)
#: Categories of characters that a terminal may obey, and the characters that turn the direction of text.
ACTING, TURNS = ("Cc", "Cs", "Zl", "Zp"), set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: Lines and letters of an error; typer puts its own in a box.
MOST_LINES, MOST_LETTERS = 20, 3000


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    error: str

    def check(self) -> None:
        """Check that it ended as documented, with nothing on the screen but text."""
        said = self.out + self.error
        assert self.code in DOCUMENTED, f"exit code {self.code}: {said[-300:]!r}"
        assert "Traceback" not in said, said[-500:]
        assert "Unexpected error" not in said, self.error[-400:]
        acting = {letter for letter in said if category(letter) in ACTING and letter not in "\n\t"} | TURNS & set(said)
        assert not acting, f"{acting} in {said[-300:]!r}"
        if self.code:
            assert 1 <= len(self.error.splitlines()) <= MOST_LINES, f"{len(self.error.splitlines())} lines of error"
            assert len(self.error) <= MOST_LETTERS, f"an error of {len(self.error)} letters: {self.error[:300]}"


@cache
def _command() -> Any:
    """Return what `app` makes of itself at each call."""
    return get_command(app)


def call(*arguments: object) -> Ended:
    """Run the command; an error that it lets through is on the error stream, as Python would print it."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    out, error = streams
    with (
        patch.object(sys, "argv", ["sfao", *map(str, arguments)]),
        patch.multiple(sys, stdout=out, stderr=error),
        patch("sfao.lab.cli.app.app", _command()),
    ):
        code = 0
        try:
            main.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except Exception:
            code = 1
            error.write(format_exc())
    return Ended(code, *(stream.buffer.getvalue().decode() for stream in streams))


@contextmanager
def runs_in_this_process() -> Iterator[None]:
    """Do the runs of comparisons, sweeps and studies here: a pool of processes takes seconds to start."""
    with patch("sfao.lab.run.pool.run_all", run_here):
        yield


def run_here(
    jobs: Sequence[Job],
    *,
    watch: Callable[[Job, Any], None] = lambda job, event: None,
    refill: Callable[[], Sequence[Job]] = lambda: (),
    data_root: Any = None,
    resume: bool = False,
    log: Sequence[str] = (),
    **_: Any,
) -> list[Record | Failure]:
    """Do what `run_all` does, one run after the other."""
    endings: list[Record | Failure] = []
    waiting = list(jobs)
    while waiting or (waiting := list(refill())):
        job = waiting.pop(0)
        ending = do_run(Assignment(job, data_root, resume, tuple(log)), lambda update: None, threading.Event())
        assert isinstance(ending, Record | Failure)
        watch(job, ending)
        endings.append(ending)
    return endings
