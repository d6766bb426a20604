"""The sfao command."""

import typer

from sfao.cli.bench import bench
from sfao.cli.compare import compare
from sfao.cli.data import data
from sfao.cli.demo import demo
from sfao.cli.estimate import estimate
from sfao.cli.list import list_all
from sfao.cli.report import report
from sfao.cli.reproduce import reproduce
from sfao.cli.run import run

app = typer.Typer(
    help="Learn task after task without forgetting: run, compare and record continual learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(run)
app.command()(compare)
app.command()(report)
app.command()(reproduce)
app.command()(estimate)
app.command()(bench)
app.command("list")(list_all)
app.add_typer(data, name="data")


def main() -> None:
    app()
