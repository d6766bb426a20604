"""Execution of runs for all commands: the launcher, signals, lines on the screen, and the exit code."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import TYPE_CHECKING, Any

from sfao.lab.cli.terminal import FAILED, fail, print_stderr

if TYPE_CHECKING:
    from sfao.lab.run.jobs import Event, Job, Runner, Watch
    from sfao.lab.run.record import Record

LAUNCHERS = ("local", "ray")


def choose_launcher(launcher: str, address: str | None, cpus: float | None, gpus: float | None) -> "Runner":
    """Return the function that runs jobs; raise a ConfigError for options that do not go together."""
    from sfao.checks import check_choice
    from sfao.lab.run.errors import ConfigError, reraise_as

    with reraise_as(ConfigError):
        check_choice("launcher", launcher, LAUNCHERS)
    if launcher == "ray":
        from sfao.lab.run.ray import RayRunner

        return RayRunner(address, cpus, gpus)
    for name, value in (("address", address), ("cpus", cpus), ("gpus", gpus)):
        if value is not None:
            raise ConfigError(f"`--{name}` is for --launcher ray, got {value!r} with --launcher {launcher}")
    from sfao.lab.run.pool import run_all

    return run_all


def check_out(out: Path) -> Path:
    """Return the folder; raise a FolderError if it can't be made or written."""
    from sfao.lab.run.errors import FolderError

    place = next(path for path in (out, *out.parents) if path.exists())
    if not place.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {place}")
    try:
        TemporaryFile(dir=place).close()
    except OSError as error:
        raise FolderError(f"`out` must be a folder that can be written, got {out}: {error.strerror}") from error
    return out


def parse_settings(texts: Sequence[str] | None, deterministic: bool = False) -> dict[str, Any]:
    """Return {name: value} of `--set` and `--deterministic`."""
    from sfao.lab.run.config import parse_setting

    settings = dict(parse_setting(text) for text in texts or ())
    return {**settings, "deterministic": True} if deterministic else settings


def run_jobs(jobs: "Sequence[Job]", *, shown: bool, debug: bool, **how: Any) -> "list[Record]":
    """Run the jobs that are not finished, with a line on the screen for each, and return the records of all."""
    from sfao.lab.run.compare import compare

    with watch_runs(jobs, shown=shown, debug=debug) as (watch, stopping):
        return compare(jobs, watch=watch, stopping=stopping, **how)


@contextmanager
def watch_runs(
    jobs: "Sequence[Job]", *, shown: bool, debug: bool = False, footer: Callable[[], str] = lambda: ""
) -> "Iterator[tuple[Watch, StopSignals]]":
    """Show the runs while they are going on; with `debug`, print the tracebacks of failures at the end.

    Yields the function that hears of events, and the one that tells whether to stop.
    """
    from sfao.lab.cli.live import live_lines
    from sfao.lab.run.jobs import Failure

    tracebacks: list[str] = []
    with stop_signals() as stopping, live_lines(jobs, shown=shown, footer=footer) as watch:

        def hear(job: "Job", event: "Event") -> None:
            if isinstance(event, Failure):
                tracebacks.append(event.traceback)
            watch(job, event)

        yield hear, stopping
    if debug and tracebacks:
        print_stderr("\n".join(tracebacks))


def exit_if_failed(records: "Sequence[Record]") -> None:
    """Exit with code 1 if a run failed or diverged."""
    failed = [record for record in records if record.status != "done"]
    if failed:
        first = failed[0]
        raise fail(
            f"{len(failed)} of {len(records)} runs failed or diverged; {first.method} seed {first.seed} on "
            f"{first.benchmark} {first.status}: {first.error}",
            FAILED,
        )


class StopSignals:
    """Becomes true with the first signal; the second one interrupts at once."""

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
    """Let Ctrl-C, a plain `kill` and a closed terminal ask to stop; signals that `nohup` ignores stay ignored."""
    from sfao.lab.run.signals import STOP_SIGNALS

    stopping = StopSignals()
    asking = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stopping.ask) for number in asking}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
