"""The sfao command."""

import typer

from sfao.cli.run import run

app = typer.Typer(
    help="Learn task after task without forgetting: run, compare and record continual learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run)


@app.callback()
def sfao() -> None:
    """Keeps `run` a command of its own while it is the only one."""


def main() -> None:
    app()
