"""sfao run: one method, one benchmark, one seed."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfao.lab.cli import options as opt
from sfao.lab.cli.execute import check_out, parse_settings, watch_runs
from sfao.lab.cli.terminal import FAILED, console, error_console, error_handler, fail, print_json
from sfao.lab.names import name_folder

if TYPE_CHECKING:
    from sfao.lab.live.live_run import LiveRun
    from sfao.lab.run.loop import Run
    from sfao.lab.run.progress import Update
    from sfao.lab.run.record import Record

SKIPPED = "finished before; nothing was run"


def run(
    benchmark: opt.Benchmark,
    method: Annotated[
        str | None, typer.Option(help="Method; see `sfao list`.", show_default="that of --config, or sfao")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Random seed for weights, data order and sampling.", min=0, show_default="that of --config, or 0"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run.", show_default="runs/BENCHMARK/METHOD-SEED")
    ] = None,
    preset: opt.Preset = "recommended",
    config: opt.Config = None,
    settings: opt.Sets = None,
    log: opt.Log = None,
    resume: opt.Resume = False,
    data_root: opt.DataRoot = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads.", min=1, max=1024, show_default="all cores; deterministic 1")
    ] = None,
    deterministic: opt.Deterministic = False,
    live: Annotated[bool, typer.Option("--live", help="Serve a page to this machine that follows the run.")] = False,
    live_port: Annotated[
        int | None, typer.Option(help="Port of --live.", min=1, max=65535, show_default="a free one")
    ] = None,
    checkpoint_seconds: opt.CheckpointSeconds = 20.0,
    quiet: opt.Quiet = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Train one method on a sequence of tasks; the record and everything needed to repeat it stay in a folder."""
    with error_handler(debug, "go on with the same command and --resume"):
        import torch

        from sfao.lab.run.config import configure
        from sfao.lab.run.jobs import Job
        from sfao.lab.run.loop import execute

        chosen = parse_settings(settings, deterministic)
        configured = configure(benchmark, method, seed=seed, preset=preset, file=config, settings=chosen)
        if threads or configured.deterministic:
            torch.set_num_threads(threads or 1)
        named = Path("runs") / name_folder(benchmark) / name_folder(f"{configured.method}-{configured.seed}")
        folder = check_out(out or named)
        job, skipped = Job(configured, folder), list[str]()
        shown = not (quiet or as_json) and error_console().is_terminal
        with serve_page(live, live_port, folder) as page, watch_runs([job], shown=shown) as (watch, stopping):

            def begin(run: "Run") -> None:
                if page is not None:
                    page.begin(run)

            def report(update: "Update") -> None:
                watch(job, update)
                if page is not None:
                    page.hear(update)

            record = execute(
                configured,
                folder,
                data_root=data_root,
                resume=resume,
                checkpoint_seconds=checkpoint_seconds,
                report=report,
                stopping=stopping,
                skipping=lambda: skipped.append(SKIPPED),
                beginning=begin,
                log=log or (),
            )
            if page is not None:
                page.finish(record)
        if as_json:
            print_json({**asdict(record), "ran": not skipped})
        elif not quiet:
            print_record(record, folder, skipped)
    if record.status != "done":
        raise fail(f"the run {record.status}: {record.error}", FAILED)


def serve_page(live: bool, port: int | None, folder: Path) -> "AbstractContextManager[LiveRun | None]":
    """Return the context in which the page of a run is served, if it is asked for."""
    if not live:
        if port is not None:
            from sfao.lab.run.errors import ConfigError

            raise ConfigError(f"`--live-port` needs --live, got {port} without it")
        return nullcontext()
    from sfao.lab.live.server import serve_run

    screen = error_console()
    return serve_run(folder, port, lambda text: screen.print(text, soft_wrap=True))


def print_record(record: "Record", folder: Path, notices: Iterable[str] = ()) -> None:
    """Print the notices, the accuracy matrix, the metrics and the folder of a run."""
    from rich.table import Table
    from rich.text import Text

    from sfao.lab.run.record import describe_rollback

    screen = console()
    for notice in notices:
        screen.print(notice)
    is_reordered = record.order != sorted(record.order)
    names = [
        f"task {number + 1}: {name}" if is_reordered else f"task {number + 1}"
        for number, name in enumerate(record.task_names)
    ]
    if record.accuracy_matrix:
        table = Table(title=f"{record.method} on {record.benchmark}, seed {record.seed}: accuracy")
        table.add_column("after")
        for name in names[: len(record.accuracy_matrix[0])]:
            table.add_column(name, justify="right")
        for number, row in enumerate(record.accuracy_matrix):
            cells = [Text(f"{a:.3f}", "bold" if i == number else "") for i, a in enumerate(row)]
            table.add_row(names[number], *cells)
        screen.print(table)
    lines = {
        **{name.replace("_", " "): f"{value:.4f}" for name, value in record.metrics.items()},
        "bytes held": f"{record.memory_bytes:,}",
        "time": f"{record.seconds:.1f} s, {record.step_ms:.2f} ms per step",
    }
    for name, text in lines.items():
        screen.print(f"{name:20} {text}")
    for rollback in record.rollbacks:
        screen.print(describe_rollback(rollback))
    for warning in record.warnings:
        screen.print(Text("warning", "yellow"), warning)
    screen.print(f"{'folder':20} {folder}", soft_wrap=True)
