"""Output of commands: tables for people, JSON for scripts, one or two lines for errors."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sfao.lab.console import escape_controls, shorten

if TYPE_CHECKING:
    from rich.table import Table

    from sfao.lab.console import PlainConsole

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130
#: Characters of an error message.
LONGEST_ERROR = 1000


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_stdout(text: str) -> None:
    typer.echo(escape_controls(text))


def print_stderr(text: str) -> None:
    typer.echo(escape_controls(text), err=True)


def print_paths(paths: Iterable[Path]) -> None:
    for path in paths:
        console().print(str(path), soft_wrap=True)


def console() -> "PlainConsole":
    """Return the console for tables; in a file or a pipe they are wider than most terminals."""
    from sfao.lab.console import PlainConsole

    screen = PlainConsole()
    return screen if screen.is_terminal else PlainConsole(width=120)


def error_console() -> "PlainConsole":
    """Return the console for progress, on the error stream."""
    from sfao.lab.console import PlainConsole

    return PlainConsole(stderr=True)


def table(*headings: str) -> "Table":
    """Return a plain table whose first column, the names, is never cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for number, heading in enumerate(headings):
        made.add_column(heading, no_wrap=number == 0, overflow="fold")
    return made


def fail(message: str, code: int) -> typer.Exit:
    """Print the message on the error stream; the caller raises what this returns."""
    first, _, second = message.partition("\n")  # the lines of a value from outside are joined
    lines = f"{first}\n{' '.join(second.split())}" if second else first
    print_stderr(f"sfao: {shorten(lines, LONGEST_ERROR)}")
    return typer.Exit(code)


@contextmanager
def error_handler(debug: bool, resume: str = "run the same command again to resume") -> Iterator[None]:
    """Turn errors into an exit code and one or two lines; with `debug`, a traceback in front of them.

    `resume` says what to do after an interrupt.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise fail("interrupted", INTERRUPTED) from None
    except (typer.Exit, BrokenPipeError):  # typer ends quietly when the reader is gone
        raise
    except Exception as error:
        from sfao.checks import MissingLibrary
        from sfao.lab.data.errors import DataError
        from sfao.lab.run.errors import (
            ConfigError,
            FolderError,
            Interrupted,
            NotDeterministic,
            ReportError,
            is_out_of_memory,
        )

        if isinstance(error, Interrupted):
            raise fail(error.describe(resume), INTERRUPTED) from None
        if debug:
            from traceback import format_exc

            print_stderr(format_exc())
        if isinstance(error, ConfigError | FolderError | DataError | MissingLibrary | ReportError):
            raise fail(str(error), BAD_USAGE) from None
        if isinstance(error, NotDeterministic):
            raise fail(str(error), FAILED) from None
        if isinstance(error, OSError):
            raise fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), FAILED) from None
        text = shorten(" ".join(str(error).split()), 300)
        if is_out_of_memory(error):
            raise fail(f"not enough memory: {text}", FAILED) from None
        raise fail(f"{type(error).__name__}: {text}\nUnexpected error; --debug prints a traceback", FAILED) from None


@contextmanager
def progress_bars(shown: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function that shows on a terminal how much is done of a piece of work: its name, done, in all.

    Bars are drawn only in this call, not in between, where time may be measured.
    """
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TimeRemainingColumn

    from sfao.lab.console import text_column

    columns = (text_column("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    screen = error_console()
    disabled = not (shown and screen.is_terminal)  # elsewhere it would leave an empty line
    with Progress(*columns, console=screen, transient=True, disable=disabled, auto_refresh=False) as display:
        known: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int | None) -> None:
            if what not in known:
                known[what] = display.add_task(what, total=total)
            display.update(known[what], completed=done, total=total)
            display.refresh()

        yield progress
