"""sfao compare: methods x seeds on one benchmark, in parallel."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli.launch import Address, Cpus, Gpus, Launcher, choose_launcher
from sfao.lab.cli.run import CheckpointSeconds, Deterministic, Loggers, ask_deterministic, stop_signals
from sfao.lab.cli.terminal import FAILED, console, fail, say, say_json, spoken_errors
from sfao.lab.names import name_folder

if TYPE_CHECKING:
    from sfao.lab.console import PlainConsole
    from sfao.lab.report.comparison import Comparison
    from sfao.lab.run.record import Record
    from sfao.lab.run.worker import Job

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, such as epochs=1, or sgd:lr=0.1 for one method alone. Repeatable."),
]


def compare(
    benchmark: Annotated[str, typer.Argument(help="Which benchmark; see `sfao list`.")],
    methods: Annotated[str, typer.Option(help="Which methods, with commas between; see `sfao list`.")],
    seeds: Annotated[str, typer.Option(help="How many seeds (5 is 0 to 4), or which (3,7).")] = "5",
    out: Annotated[Path | None, typer.Option(help="The folder of the runs.", show_default="runs/BENCHMARK")] = None,
    preset: Annotated[str, typer.Option(help="Whose settings: recommended, released or paper.")] = "recommended",
    config: Annotated[Path | None, typer.Option(help="A YAML file of settings for all.")] = None,
    settings: Sets = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time.", min=1, show_default="as many as cores")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of a run.", min=1, max=1024)] = 1,
    deterministic: Deterministic = False,
    launcher: Launcher = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    log: Loggers = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with unfinished runs.")] = False,
    checkpoint_seconds: CheckpointSeconds = 20.0,
    data_root: Annotated[
        Path | None, typer.Option(help="Where the data lie.", show_default="$SFAO_DATA or the cache")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Run methods x seeds in parallel and compare them; what is finished already is not run again."""
    with spoken_errors(debug):
        from sfao.lab.run.config import parse_setting
        from sfao.lab.run.plan import parse_methods, parse_seeds, plan

        run = choose_launcher(launcher, address, cpus, gpus)
        out = out or Path("runs") / name_folder(benchmark)
        chosen = ask_deterministic(deterministic, dict(parse_setting(text) for text in settings or []))
        planned = plan(
            benchmark,
            parse_methods(methods),
            parse_seeds(seeds),
            out,
            preset=preset,
            file=config,
            settings=chosen,
            checkpoint_seconds=checkpoint_seconds,
        )
        compare_and_print(
            planned,
            out,
            data_root=data_root,
            resume=resume,
            workers=jobs,
            threads=threads,
            run=run,
            log=log or (),
            quiet=quiet,
            as_json=as_json,
            debug=debug,
        )


def compare_and_print(jobs: "list[Job]", out: Path, *, quiet: bool, as_json: bool, debug: bool, **how: Any) -> None:
    """Do the runs in view of the user, write and print the table; exit code 1 when a run failed or diverged."""
    from sfao.lab.report.comparison import compare_records

    records = run_in_view(jobs, shown=not (quiet or as_json), debug=debug, **how)
    compared = compare_records(records)
    summary = write_results(compared, jobs, records, out)
    if as_json:
        say_json(summary)
    elif not quiet:
        print_results(compared, records, out)
    check_ended_well(records)


def run_in_view(jobs: "list[Job]", *, shown: bool, debug: bool, **how: Any) -> "list[Record]":
    """Do the runs, each with a line on the screen, and return their records; with `debug`, print tracebacks."""
    from sfao.lab.cli.live import live_lines
    from sfao.lab.run.compare import compare

    tracebacks: list[str] = []
    with stop_signals() as stopping, live_lines(jobs, shown=shown) as watch:
        records = compare(jobs, watch=note_tracebacks(watch, tracebacks), stopping=stopping, **how)
    if debug:
        say("\n".join(tracebacks))
    return records


def check_ended_well(records: "list[Record]") -> None:
    """Exit with code 1 when a run failed or diverged."""
    troubled = [record for record in records if record.status != "done"]
    if troubled:
        first = troubled[0]
        raise fail(
            f"{len(troubled)} of {len(records)} runs did not end well; "
            f"{first.method} seed {first.seed} {first.status}: {first.error}",
            FAILED,
        )


def note_tracebacks(watch: Any, tracebacks: list[str]) -> Any:
    """Return a function that passes events on to `watch`, and adds the traceback of every failure to the list."""
    from sfao.lab.run.worker import Failure

    def hear(job: "Job", event: object) -> None:
        if isinstance(event, Failure):
            tracebacks.append(event.traceback)
        watch(job, event)

    return hear


def write_results(
    compared: "Comparison", jobs: "list[Job]", records: "list[Record]", out: Path, **more: Any
) -> dict[str, Any]:
    """Write comparison.json, with `more` in it, and comparison.md, each whole or not at all; return the first."""
    from sfao.lab.report.comparison_table import as_json, as_markdown
    from sfao.lab.run.files import write_json, write_text

    runs = [
        {
            "folder": job.folder.name,
            **{name: getattr(record, name) for name in ("method", "seed", "status", "error")},
        }
        for job, record in zip(jobs, records, strict=True)
    ]
    summary = {**as_json(compared), "runs": runs, **more}
    write_json(out / "comparison.json", summary)
    write_text(out / "comparison.md", as_markdown(compared))
    return summary


def print_table(compared: "Comparison", records: "list[Record]", screen: "PlainConsole") -> None:
    """Print the table, and a line for each run that did not end well."""
    from sfao.lab.report.comparison_table import print_comparison

    print_comparison(compared, screen)
    for record in records:
        if record.status != "done":
            line = f"{record.method} seed {record.seed} {record.status}: {record.error}"
            screen.print(line, style="red")


def print_results(compared: "Comparison", records: "list[Record]", out: Path) -> None:
    screen = console()
    print_table(compared, records, screen)
    for path in (out / "comparison.json", out / "comparison.md", out / "METHOD-SEED/record.json"):
        screen.print(str(path), soft_wrap=True)
