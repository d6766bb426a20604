"""sfao report: finished runs as a page, tables and figures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from sfao.lab.cli.execute import check_out
from sfao.lab.cli.options import AsJson, Debug
from sfao.lab.cli.terminal import console, error_console, error_handler, print_json, print_paths

#: Seconds after which a user wants to know what is going on.
PATIENCE = 2.0


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Runs, or folders that hold runs.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report.", show_default="report in the one RUN_DIR, or here")
    ] = None,
    figures: Annotated[Literal["pdf", "png", "svg"], typer.Option(help="Format of the figures.")] = "pdf",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Build an HTML report, tables in Markdown and LaTeX, and figures from finished runs."""
    with error_handler(debug):
        out = check_out(out) if out else (folders[0] if len(folders) == 1 else Path()) / "report"
        with progress() as tell:
            tell("loading the libraries")
            from sfao.lab.report.write import write_report

            written, notices = write_report(folders, out, tell, figures)
    if as_json:
        print_json({"written": [str(path) for path in written], "notices": notices})
        return
    screen = console()
    for line in notices:
        screen.print(line, style="yellow", soft_wrap=True)
    print_paths(written)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show the current work on the error stream of a terminal, once it takes long."""
    from rich.text import Text

    screen, began = error_console(), time.monotonic()
    status = screen.status("")

    def tell(doing: str) -> None:
        status.update(Text(doing))
        if screen.is_terminal and time.monotonic() - began > PATIENCE:
            status.start()

    try:
        yield tell
    finally:
        status.stop()
