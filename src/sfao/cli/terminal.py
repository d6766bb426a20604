"""How commands speak: people get tables and progress, scripts get JSON, errors get one or two lines."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130


def say_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def fail(message: str, code: int) -> typer.Exit:
    """Say what is wrong on the error stream; the caller raises what this returns."""
    typer.echo(f"sfao: {message}", err=True)
    return typer.Exit(code)


@contextmanager
def spoken_errors(debug: bool) -> Iterator[None]:
    """Turn what a user can mend into an exit code and a line; with `debug`, a traceback."""
    from sfao.benchmarks.errors import DataError
    from sfao.experiment.errors import ConfigError, FolderError, Interrupted

    try:
        yield
    except Interrupted:
        raise fail("interrupted; the state is saved, go on with the same command and --resume", INTERRUPTED) from None
    except KeyboardInterrupt:
        raise fail("interrupted", INTERRUPTED) from None
    except (ConfigError, FolderError, DataError) as error:
        if debug:
            raise
        raise fail(str(error), BAD_USAGE) from None
    except OSError as error:
        if debug:
            raise
        raise fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), FAILED) from None
