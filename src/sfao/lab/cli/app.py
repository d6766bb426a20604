"""The commands of the laboratory, collected under `sfao`."""

from typing import Annotated

import typer

from sfao import __version__
from sfao.lab.cli.bench import bench
from sfao.lab.cli.compare import compare
from sfao.lab.cli.data import data
from sfao.lab.cli.demo import demo
from sfao.lab.cli.list import list_known
from sfao.lab.cli.report import report
from sfao.lab.cli.reproduce import reproduce
from sfao.lab.cli.run import run
from sfao.lab.cli.terminal import print_stdout
from sfao.lab.cli.tune import tune

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def show_version(wanted: bool) -> None:
    if wanted:
        print_stdout(f"sfao {__version__}")
        raise typer.Exit


@app.callback()
def sfao(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train, compare and record methods of continual learning."""


for command in (demo, run, compare, tune, report, reproduce, bench):
    app.command()(command)
app.command("list")(list_known)
app.add_typer(data, name="data")
