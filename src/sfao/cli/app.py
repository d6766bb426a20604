"""The commands of the laboratory, collected under `sfao`."""

from typing import Annotated

import typer

from sfao import __version__
from sfao.cli.bench import bench
from sfao.cli.compare import compare
from sfao.cli.curriculum import curriculum
from sfao.cli.data import data
from sfao.cli.demo import demo
from sfao.cli.estimate import estimate
from sfao.cli.list import list_all
from sfao.cli.report import report
from sfao.cli.reproduce import reproduce
from sfao.cli.run import run
from sfao.cli.sweep import sweep
from sfao.cli.tune import tune

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sfao {__version__}")
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
app.command()(sweep)
app.command()(tune)
app.command()(curriculum)
app.command()(report)
app.command()(reproduce)
app.command()(estimate)
app.command()(bench)
app.command("list")(list_all)
app.add_typer(data, name="data")
