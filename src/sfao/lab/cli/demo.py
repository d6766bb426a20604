"""sfao demo: a comparison with everything chosen, on data that comes with the package, and its report."""

import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfao.lab.cli.compare import print_table, write_results
from sfao.lab.cli.execute import check_out, exit_if_failed, run_jobs
from sfao.lab.cli.options import AsJson, Debug, Quiet
from sfao.lab.cli.report import progress
from sfao.lab.cli.terminal import console, error_handler, print_json, print_paths

if TYPE_CHECKING:
    from sfao.lab.run.jobs import Job

BENCHMARK = "split-mnist-5k"
#: Methods that store data and show what could be reached with it.
BOUNDS = ("gem", "joint")
SEEDS = (0, 1, 2)
#: Four times the benchmark's batch at four times its rate: the same learning in a quarter of the steps.
SETTINGS = {"batch_size": 64, "lr": 0.04}
#: Share of the training data that --quick uses.
QUICK = 0.05
#: Variables that are set in a graphical session (macOS and Windows need none), and where nobody sees this screen.
DISPLAYS, AWAY = ("DISPLAY", "WAYLAND_DISPLAY"), ("CI", "SSH_CONNECTION", "SSH_TTY")


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs.", show_default="runs/demo; quick: runs/demo-quick")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Take a quick look: one seed on 5 % of the data.")] = False,
    is_opened: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = True,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare all methods that store no data, and two that do, on 5,000 digits in five tasks: a minute on two cores.

    It ends with the main result, the table and a report. Run the same command again to resume.
    """
    with error_handler(debug):
        from sfao.lab.run.jobs import plan

        folder = check_out(out or Path("runs/demo-quick" if quick else "runs/demo"))
        seeds, fraction = (SEEDS[:1], {"fraction": QUICK}) if quick else (SEEDS, {})
        jobs = plan(BENCHMARK, list_methods(), seeds, folder, settings={**SETTINGS, **fraction})
        show_demo(jobs, folder, is_opened=is_opened, quiet=quiet, as_json=as_json, debug=debug)


def list_methods() -> tuple[str, ...]:
    """Return our methods that neither store data nor need to be told the task, and the bounds."""
    from sfao.lab.methods import METHODS

    rivals = [name for name, method in METHODS.items() if not (method.stores_data or method.needs_task)]
    return (*rivals, *BOUNDS)


def show_demo(jobs: "list[Job]", out: Path, *, is_opened: bool, quiet: bool, as_json: bool, debug: bool) -> None:
    """Run the jobs; write and print the main result, the table and the path of the report."""
    from sfao.lab.report.comparison import compare_records
    from sfao.lab.report.headline import describe_findings, find_finding

    shown = not (quiet or as_json)
    records = run_jobs(jobs, shown=shown, debug=debug, resume=True)
    compared = compare_records(records)
    page = report_runs(jobs, out / "report", shown=shown)
    finding = describe_findings(compared.groups)
    summary = write_results(compared, jobs, records, out, finding=finding, report=str(page) if page else "")
    if as_json:
        print_json(summary)
    if shown:
        screen = console()
        for group in compared.groups:
            screen.print(find_finding(group).headline, style="bold")
        screen.print()
        print_table(compared, records, screen)
        if page:
            screen.print()
            print_paths([page])
            if is_opened:
                show_page(page)
    exit_if_failed(records)


def report_runs(jobs: "list[Job]", out: Path, *, shown: bool) -> Path | None:
    """Write the report of the runs that left a record, and return its page; None if there are no records."""
    from sfao.lab.report.write import write_report
    from sfao.lab.run.record import RECORD

    folders = [job.folder for job in jobs if (job.folder / RECORD).exists()]
    if not folders:
        return None
    with progress() if shown else nullcontext(lambda doing: None) as tell:
        (page, *_), _ = write_report(folders, out, tell)
    return page


def show_page(page: Path) -> None:
    """Open a page in the browser where there is a screen."""
    if has_screen(os.environ, sys.platform, sys.stdout.isatty()):
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def has_screen(environment: Mapping[str, str], platform: str, is_terminal: bool) -> bool:
    """Return True if the user of this command would see a browser."""
    if not is_terminal or any(environment.get(name) for name in AWAY):
        return False
    return platform in ("darwin", "win32") or any(environment.get(name) for name in DISPLAYS)
