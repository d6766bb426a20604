"""The commands of the laboratory, collected under `sfao`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sfao import __version__
from sfao.lab.cli.bench import bench
from sfao.lab.cli.compare import compare
from sfao.lab.cli.data import data
from sfao.lab.cli.demo import demo
from sfao.lab.cli.list import list_all
from sfao.lab.cli.report import report
from sfao.lab.cli.reproduce import reproduce
from sfao.lab.cli.run import run
from sfao.lab.cli.terminal import LONGEST_ERROR, say
from sfao.lab.cli.tune import tune
from sfao.lab.console import escape_controls, shorten


@contextmanager
def plain_usage_errors() -> Iterator[None]:
    """Take letters that act, and most of a long value, out of what typer says of arguments that it refuses."""
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if isinstance(message, str) and hasattr(error, "format_message"):
            error.message = shorten(escape_controls(message), LONGEST_ERROR)  # type: ignore[attr-defined]
        raise


class PlainGroup(TyperGroup):
    """The commands; errors of usage are text."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with plain_usage_errors():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        with plain_usage_errors():
            return super().invoke(ctx)


app = typer.Typer(cls=PlainGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def show_version(wanted: bool) -> None:
    if wanted:
        say(f"sfao {__version__}", error=False)
        raise typer.Exit


@app.callback()
def sfao(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn task after task without forgetting: run, compare and record continual learning."""


app.command()(demo)
app.command()(run)
app.command()(compare)
app.command()(tune)
app.command()(report)
app.command()(reproduce)
app.command()(bench)
app.command("list")(list_all)
app.add_typer(data, name="data")
