"""sfao demo: a comparison with everything chosen, on data that comes with the package, and its report."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfao.lab.cli.browser import show_page
from sfao.lab.cli.compare import check_ended_well, print_table, run_in_view, write_results
from sfao.lab.cli.report import progress
from sfao.lab.cli.terminal import INTERRUPTED, console, fail, say_json, spoken_errors

if TYPE_CHECKING:
    from sfao.lab.run.worker import Job

BENCHMARK = "split-mnist-5k"
#: Methods that store data and show what could be reached with it.
BOUNDS = ("gem", "joint")
SEEDS = (0, 1, 2)
#: Four times the benchmark's batch at four times its rate: the same learning in a quarter of the steps.
SETTINGS = {"batch_size": 64, "lr": 0.04}
#: How much of the training data --quick learns from.
QUICK = 0.05


def demo(
    out: Annotated[
        Path | None, typer.Option(help="The folder of the runs.", show_default="runs/demo; quick: runs/demo-quick")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed on a slice of the data: a look, no result.")] = False,
    opening: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser, where there is a screen.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """All methods that store no data, and two that do, on 5,000 real digits in five tasks: a minute on two cores.

    It ends in the finding, the table and a report. Again, it goes on where it was stopped.
    """
    with spoken_errors(debug):
        from sfao.lab.run.errors import Interrupted
        from sfao.lab.run.plan import plan

        folder = out or Path("runs/demo-quick" if quick else "runs/demo")
        seeds, slice_of_it = (SEEDS[:1], {"fraction": QUICK}) if quick else (SEEDS, {})
        jobs = plan(BENCHMARK, list_methods(), seeds, folder, settings={**SETTINGS, **slice_of_it})
        try:
            show_demo(jobs, folder, opening=opening, quiet=quiet, as_json=as_json, debug=debug)
        except Interrupted as error:
            raise fail(error.describe("the same command goes on"), INTERRUPTED) from None


def list_methods() -> tuple[str, ...]:
    """Return every method of ours that stores no data and need not be told the task, and the bounds."""
    from sfao.lab.methods import METHODS

    rivals = [name for name, method in METHODS.items() if not (method.stores_data or method.needs_task)]
    return (*rivals, *BOUNDS)


def show_demo(jobs: "list[Job]", out: Path, *, opening: bool, quiet: bool, as_json: bool, debug: bool) -> None:
    """Do the runs in view of the user; write and print the finding, the table and the path of the report."""
    from sfao.lab.report.comparison import compare_records
    from sfao.lab.report.headline import describe_finding, find_findings

    shown = not (quiet or as_json)
    records = run_in_view(jobs, shown=shown, debug=debug, resume=True)
    compared = compare_records(records)
    page = report_runs(jobs, out / "report", shown=shown)
    finding, path = describe_finding(records), str(page) if page else ""
    summary = write_results(compared, jobs, records, out, finding=finding, report=path)
    if as_json:
        say_json(summary)
    if shown:
        screen = console()
        for found in find_findings(records):
            screen.print(found.headline, style="bold")
        screen.print()
        print_table(compared, records, screen)
        if page:
            screen.print()
            screen.print(path, soft_wrap=True)
        if page and opening:
            show_page(page)
    check_ended_well(records)


def report_runs(jobs: "list[Job]", out: Path, *, shown: bool) -> Path | None:
    """Write the report of the runs that left a record, and return its page; None where no run could leave one."""
    from sfao.lab.report.write import write_report
    from sfao.lab.run.record import RECORD

    folders = [job.folder for job in jobs if (job.folder / RECORD).exists()]
    if not folders:
        return None
    with progress() if shown else nullcontext(lambda doing: None) as tell:
        (page, *_), _ = write_report(folders, out, tell)
    return page
