"""sfao compare: methods x seeds on one benchmark, in parallel."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli import options as opt
from sfao.lab.cli.execute import check_out, choose_launcher, exit_if_failed, parse_settings, run_jobs
from sfao.lab.cli.terminal import console, error_handler, print_json, print_paths
from sfao.lab.names import name_folder

if TYPE_CHECKING:
    from sfao.lab.console import PlainConsole
    from sfao.lab.report.comparison import Comparison
    from sfao.lab.run.jobs import Job
    from sfao.lab.run.record import Record


def compare(
    benchmark: opt.Benchmark,
    methods: Annotated[str, typer.Option(help="Methods with commas between; see `sfao list`.")],
    seeds: Annotated[str, typer.Option(help="Number of seeds (5 is 0 to 4), or the seeds (3,7).")] = "5",
    out: Annotated[Path | None, typer.Option(help="Folder of the runs.", show_default="runs/BENCHMARK")] = None,
    preset: opt.Preset = "recommended",
    config: opt.Config = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting, such as epochs=1, or sgd:lr=0.1 for one method. Repeatable."),
    ] = None,
    jobs: opt.Jobs = None,
    threads: opt.Threads = 1,
    deterministic: opt.Deterministic = False,
    launcher: opt.Launcher = "local",
    address: opt.Address = None,
    cpus: opt.Cpus = None,
    gpus: opt.Gpus = None,
    log: opt.Log = None,
    resume: opt.Resume = False,
    checkpoint_seconds: opt.CheckpointSeconds = 20.0,
    data_root: opt.DataRoot = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Run several methods and seeds in parallel and compare them. Runs that are finished are not repeated."""
    with error_handler(debug, "go on with the same command and --resume"):
        from sfao.lab.report.comparison import compare_records
        from sfao.lab.run.jobs import parse_methods, parse_seeds, plan

        run = choose_launcher(launcher, address, cpus, gpus)
        out = check_out(out or Path("runs") / name_folder(benchmark))
        planned = plan(
            benchmark,
            parse_methods(methods),
            parse_seeds(seeds),
            out,
            preset=preset,
            file=config,
            settings=parse_settings(settings, deterministic),
            checkpoint_seconds=checkpoint_seconds,
        )
        records = run_jobs(
            planned,
            shown=not (quiet or as_json),
            debug=debug,
            data_root=data_root,
            resume=resume,
            workers=jobs,
            threads=threads,
            run=run,
            log=log or (),
        )
        compared = compare_records(records)
        summary = write_results(compared, planned, records, out)
        if as_json:
            print_json(summary)
        elif not quiet:
            print_table(compared, records, console())
            print_paths([out / "comparison.json", out / "comparison.md", out / "METHOD-SEED/record.json"])
        exit_if_failed(records)


def write_results(
    compared: "Comparison", jobs: "list[Job]", records: "list[Record]", out: Path, **more: Any
) -> dict[str, Any]:
    """Write comparison.json, with `more` in it, and comparison.md; return the content of the first."""
    from sfao.lab.report.comparison_table import as_json, as_markdown
    from sfao.lab.run.files import write_json, write_text

    runs = [
        {"folder": job.folder.name, **{name: getattr(record, name) for name in ("method", "seed", "status", "error")}}
        for job, record in zip(jobs, records, strict=True)
    ]
    summary = {**as_json(compared), "runs": runs, **more}
    write_json(out / "comparison.json", summary)
    write_text(out / "comparison.md", as_markdown(compared))
    return summary


def print_table(compared: "Comparison", records: "list[Record]", screen: "PlainConsole") -> None:
    """Print the table, and a line for each run that failed or diverged."""
    from sfao.lab.report.comparison_table import print_comparison

    print_comparison(compared, screen)
    for record in records:
        if record.status != "done":
            screen.print(f"{record.method} seed {record.seed} {record.status}: {record.error}", style="red")
