"""sfao report: finished runs as a page, tables and figures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sfao.lab.cli.terminal import console, error_console, say_json, spoken_errors

#: Seconds after which a user wants to know what is going on.
PATIENCE = 2.0
#: The names of the figures in a report, so that the next one takes away those that it does not have.
WRITTEN = ".figures.json"

Tell = Callable[[str], None]


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Runs, or folders that hold runs.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the report.", show_default="report in the one RUN_DIR, or here")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the paths of what was written as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Make of finished runs: report.html, the table in Markdown and LaTeX, and the figures as PDF."""
    with spoken_errors(debug):
        out = out or (folders[0] if len(folders) == 1 else Path()) / "report"
        with progress() as tell:
            written, notices = write_report(folders, out, tell)
    if as_json:
        say_json({"written": [str(path) for path in written], "notices": notices})
        return
    screen = console()
    for line in notices:
        screen.print(line, style="yellow", soft_wrap=True)
    for path in written:
        screen.print(str(path), soft_wrap=True)


def write_report(folders: list[Path], out: Path, tell: Tell) -> tuple[list[Path], list[str]]:
    """Write the report; return the files, and the notices to its reader. Nothing is written before all is made."""
    tell("loading the libraries")
    from sfao.lab.report.comparison import compare_records
    from sfao.lab.report.comparison_table import as_latex, as_markdown
    from sfao.lab.report.errors import ReportError
    from sfao.lab.report.figures import as_pdf, draw_figures, note_missing_letters
    from sfao.lab.report.groups import group_runs
    from sfao.lab.report.page.write import write_page
    from sfao.lab.report.runs import find_unfinished_runs, load_runs, write_notices
    from sfao.lab.run.files import write_atomically, write_json

    if out.exists() and not out.is_dir():
        raise ReportError(f"`out` must be a folder, got the file {out}")
    tell("reading runs")
    runs = load_runs(folders)
    notices = write_notices(runs, find_unfinished_runs(folders))
    compared = compare_records([run.record for run in runs])
    made = {out / "table.md": as_markdown(compared).encode(), out / "table.tex": as_latex(compared).encode()}
    drawn = []
    for group in group_runs(runs):
        tell(f"drawing {group.group.title}")
        drawn.append(draw_figures(group))
        made |= {out / "figures" / f"{drawing.name}.pdf": as_pdf(drawing) for drawing in drawn[-1]}
    lacking = note_missing_letters([drawing for drawings in drawn for drawing in drawings])
    notices += [lacking] if lacking else []
    tell("writing the page")
    (out / "figures").mkdir(parents=True, exist_ok=True)
    figures = {path.name for path in made if path.suffix == ".pdf"}
    before = figures_before(out)
    write_json(out / WRITTEN, sorted(figures | before))  # first: whatever is written from here on is known as ours
    page = write_page(runs, drawn, out, notices)
    for path, data in made.items():
        write_atomically(path, data)
    for name in before - figures:
        (out / "figures" / name).unlink(missing_ok=True)
    write_json(out / WRITTEN, sorted(figures))
    return [page, *made], notices


def figures_before(out: Path) -> set[str]:
    """Return the names of the figures that an earlier report left here; only those that are names."""
    from sfao.lab.safe_io import read_json

    try:
        names = read_json(out / WRITTEN)
    except (OSError, ValueError):
        return set()
    known = names if isinstance(names, list) else []
    return {name for name in known if isinstance(name, str) and Path(name).name == name and name.endswith(".pdf")}


@contextmanager
def progress() -> Iterator[Tell]:
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
