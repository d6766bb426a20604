"""sfao run: one method, one benchmark, one seed."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli.terminal import FAILED, console, error_console, fail, say_json, spoken_errors
from sfao.lab.names import name_folder

if TYPE_CHECKING:
    from sfao.lab.console import PlainConsole
    from sfao.lab.live.live_run import LiveRun
    from sfao.lab.run.progress import Report, Update
    from sfao.lab.run.record import Record
    from sfao.lab.run.run import Run

Sets = Annotated[list[str] | None, typer.Option("--set", help="A setting, such as model.hidden=784. Repeatable.")]
Loggers = Annotated[
    list[str] | None,
    typer.Option("--log", help="Log to csv, tensorboard, wandb or mlflow, in the run folder. Repeatable."),
]

Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="Same bits again, on a GPU too; what has no such form ends the run."),
]

CheckpointSeconds = Annotated[
    float,
    typer.Option(
        help="Seconds of work that may be lost: between checkpoints, or ten times what saving takes if that is more. "
        "The end of a task is saved if that is due within 20 s.",
        min=0,
    ),
]

Live = Annotated[bool, typer.Option("--live", help="Serve a page to this machine that shows the run as it goes on.")]
LivePort = Annotated[
    int | None, typer.Option("--live-port", help="The port of --live.", min=1, max=65535, show_default="a free one")
]

SKIPPED = "finished before; nothing was run"


def run(
    benchmark: Annotated[str, typer.Argument(help="Which benchmark; see `sfao list`.")],
    method: Annotated[
        str | None, typer.Option(help="Which method; see `sfao list`.", show_default="that of --config, or sfao")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of weights, order and sampling.", min=0, show_default="that of --config, or 0"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the run, if not runs/BENCHMARK/METHOD-SEED")] = None,
    preset: Annotated[str, typer.Option(help="Whose settings: recommended, released or paper.")] = "recommended",
    config: Annotated[Path | None, typer.Option(help="A YAML file of settings.")] = None,
    settings: Sets = None,
    log: Loggers = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an unfinished run.")] = False,
    data_root: Annotated[
        Path | None, typer.Option(help="Where the data lie.", show_default="$SFAO_DATA or the cache")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads.", min=1, max=1024, show_default="all cores; deterministic 1")
    ] = None,
    deterministic: Deterministic = False,
    live: Live = False,
    live_port: LivePort = None,
    checkpoint_seconds: CheckpointSeconds = 20.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors and the address of --live.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Learn a stream of tasks with one method; the record and all that made it stay in a folder."""
    with spoken_errors(debug):
        import torch

        from sfao.lab.run.config import configure, parse_setting

        configured = configure(
            benchmark,
            method,
            seed=seed,
            preset=preset,
            file=config,
            settings=ask_deterministic(deterministic, dict(parse_setting(text) for text in settings or [])),
        )
        if threads or configured.deterministic:
            torch.set_num_threads(threads or 1)
        folder = out or Path("runs") / name_folder(benchmark) / name_folder(f"{configured.method}-{configured.seed}")
        skipped: list[str] = []
        screen = error_console()
        serving = serve_page(live, live_port, folder, screen)
        bar = progress_bar(screen, shown=not (quiet or as_json))
        with stop_signals() as stopping, serving as page, bar as report:
            from sfao.lab.run.execute import execute

            def begin(run: "Run") -> None:
                if page is not None:
                    page.begin(run)

            def tell(update: "Update") -> None:
                report(update)
                if page is not None:
                    page.hear(update)

            record = execute(
                configured,
                folder,
                data_root=data_root,
                resume=resume,
                checkpoint_seconds=checkpoint_seconds,
                report=tell,
                stopping=stopping,
                skipping=lambda: skipped.append(SKIPPED),
                beginning=begin,
                log=log or (),
            )
            if page is not None:
                page.finish(record)
        if as_json:
            say_json({**asdict(record), "ran": not skipped})
        elif not quiet:
            print_record(record, folder, skipped)
    if record.status != "done":
        raise fail(f"the run {record.status}: {record.error}", FAILED)


def ask_deterministic(asked: bool, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with what `--deterministic` stands for."""
    return {**settings, "deterministic": True} if asked else settings


def serve_page(
    live: bool, port: int | None, folder: Path, screen: "PlainConsole"
) -> "AbstractContextManager[LiveRun | None]":
    """Return the context in which the page of a run is served, where it is asked for."""
    if not live:
        if port is not None:
            from sfao.lab.run.errors import ConfigError

            raise ConfigError(f"`--live-port` is for --live, got {port} without it")
        return nullcontext()
    from sfao.lab.live.server import serve_run

    return serve_run(folder, port, lambda text: screen.print(text, soft_wrap=True))


class StopSignals:
    """Remembers that a signal asked to stop; a second one interrupts at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Let Ctrl-C, a plain `kill` and a terminal that is closed ask to stop; what `nohup` ignores stays ignored."""
    from sfao.lab.run.signals import STOP_SIGNALS

    stopping = StopSignals()
    asking = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stopping.ask) for number in asking}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress_bar(screen: "PlainConsole", shown: bool) -> "Iterator[Report]":
    """Show a bar over all steps: task, epoch, steps per second, loss, and the decisions of the gate."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from sfao.lab.console import text_column

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), "{task.fields[live]}")
    bar = Progress(
        *(text_column(column) if isinstance(column, str) else column for column in columns),
        console=screen,
        transient=True,
        disable=not (shown and screen.is_terminal),  # elsewhere it would leave an empty line
    )
    with bar:
        item = bar.add_task("starting", total=None, live="")

        def report(update: "Update") -> None:
            total = sum(update.decisions.values())
            rates = "  ".join(f"{name} {count / total:.0%}" for name, count in update.decisions.items() if count)
            bar.update(
                item,
                description=f"task {update.task + 1}/{update.tasks} epoch {update.epoch + 1}/{update.epochs}",
                total=update.steps,
                completed=update.step,
                live=f"{update.steps_per_second:.0f} it/s  loss {update.loss:.3f}  {rates}",
            )

        yield report


def _name_task(record: "Record", number: int) -> str:
    """Return `task 1`, with the name of the task where tasks are not in their own order."""
    is_moved = record.order != sorted(record.order)
    return f"task {number + 1}: {record.task_names[number]}" if is_moved else f"task {number + 1}"


def print_record(record: "Record", folder: Path, notices: Iterable[str] = ()) -> None:
    """Print the notices, the accuracy matrix, the metrics and the folder of a run."""
    from rich.table import Table
    from rich.text import Text

    from sfao.lab.run.record import describe_rollback

    screen = console()
    for notice in notices:
        screen.print(notice)
    if record.accuracy_matrix:
        table = Table(title=f"{record.method} on {record.benchmark}, seed {record.seed}: accuracy")
        table.add_column("after")
        for number in range(len(record.accuracy_matrix[0])):
            table.add_column(_name_task(record, number), justify="right")
        for number, row in enumerate(record.accuracy_matrix):
            cells = [Text(f"{a:.3f}", "bold" if i == number else "") for i, a in enumerate(row)]
            table.add_row(_name_task(record, number), *cells)
        screen.print(table)
    for name, value in record.metrics.items():
        screen.print(f"{name.replace('_', ' '):20} {value:.4f}")
    screen.print(f"{'bytes held':20} {record.memory_bytes:,}")
    screen.print(f"{'time':20} {record.seconds:.1f} s, {record.step_ms:.2f} ms a step")
    for rollback in record.rollbacks:
        screen.print(describe_rollback(rollback))
    for warning in record.warnings:
        screen.print(Text("warning", "yellow"), warning)
    screen.print(f"{'folder':20} {folder}", soft_wrap=True)
