"""The output of commands: tables and progress for people, JSON for scripts, one or two lines for errors."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130


def say_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def console() -> "Console":
    """Return the console for tables; in a file or a pipe they are wider than most terminals."""
    from rich.console import Console

    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=120)


def table(*headings: str) -> "Table":
    """Return a plain table whose first column, the names, is never cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for number, heading in enumerate(headings):
        made.add_column(heading, no_wrap=number == 0, overflow="fold")
    return made


def fail(message: str, code: int) -> typer.Exit:
    """Print what is wrong on the error stream; the caller raises what this returns."""
    typer.echo(f"sfao: {message}", err=True)
    return typer.Exit(code)


@contextmanager
def spoken_errors(debug: bool) -> Iterator[None]:
    """Turn errors that a user can fix into an exit code and a line; with `debug`, a traceback."""
    from sfao.checks import MissingLibrary
    from sfao.data.errors import DataError
    from sfao.experiment.errors import ConfigError, FolderError, GuardError, Interrupted, NotDeterministic
    from sfao.reports.errors import ReportError

    try:
        yield
    except Interrupted:
        raise fail("interrupted; the state is saved, go on with the same command and --resume", INTERRUPTED) from None
    except KeyboardInterrupt:
        raise fail("interrupted", INTERRUPTED) from None
    except (typer.Exit, BrokenPipeError):  # typer ends quietly when the reader is gone
        raise
    except (ConfigError, FolderError, DataError, MissingLibrary, ReportError) as error:
        if debug:
            raise
        raise fail(str(error), BAD_USAGE) from None
    except (GuardError, NotDeterministic) as error:
        if debug:
            raise
        raise fail(str(error), FAILED) from None
    except OSError as error:
        if debug:
            raise
        raise fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), FAILED) from None
    except Exception as error:
        if debug:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise fail(f"{said}\nNobody foresaw this: --debug shows where it happened", FAILED) from None
