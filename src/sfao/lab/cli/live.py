"""Many runs on one screen: one line each, while they go on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sfao.lab.cli.terminal import error_console
from sfao.lab.console import PlainConsole, escape_controls
from sfao.lab.run.compare import jobs_by_folder
from sfao.lab.run.pool import Event, Lost, Skipped, Watch
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record
from sfao.lab.run.worker import Begun, Failure, Job

STYLES = {
    "waiting": "dim",
    "running": "cyan",
    "done": "green",
    "skipped": "green",
    "diverged": "yellow",
    "failed": "red",
}
#: When there are more runs than lines, those further back are counted instead of shown.
IMPORTANCE = ("running", "failed", "diverged", "waiting", "done", "skipped")


@dataclass
class Line:
    """The state of a run; its place is named where there are several."""

    job: Job
    place: str = ""
    state: str = "waiting"
    detail: str = ""
    share: float = 0.0

    def hear(self, event: Event) -> None:
        if isinstance(event, Begun):
            self.state, self.detail = "running", "starting"
        elif isinstance(event, Update):
            self.share, self.detail = event.step / event.steps, describe_progress(event)
        elif isinstance(event, Failure):
            self.state, self.detail = "failed", event.error
        elif isinstance(event, Lost):
            self.state, self.detail = "waiting", f"{event.reason}; retry {event.attempt} of {event.most}"
        elif isinstance(event, Skipped):
            self.state, self.detail = "skipped", f"finished before: {describe_ending(event.record)}"
        else:
            self.state, self.detail = event.status, describe_ending(event)

    @property
    def name(self) -> str:
        """The method and, where the folder tells it, the variant: sfao-accept0.90."""
        return self.job.folder.name.removesuffix(f"-{self.job.config.seed}")

    @property
    def cells(self) -> tuple[RenderableType, ...]:
        running = self.state == "running"
        shown = ProgressBar(total=1.0, completed=self.share, width=20) if running else Text("")
        style = STYLES[self.state]
        return (
            self.name,
            f"seed {self.job.config.seed}",
            Text(self.state, style),
            shown,
            Text(escape_controls(self.detail), overflow="ellipsis"),
        )

    @property
    def escape_controls(self) -> str:
        name = f"{self.place}/{self.name}" if self.place else self.name
        return f"{name} seed {self.job.config.seed}: {self.state}{': ' * bool(self.detail)}{self.detail}"


def describe_progress(update: Update) -> str:
    """Return the position of a run, its speed, and the decisions of its gate so far."""
    total = sum(update.decisions.values())
    rates = [f"{name} {count / total:.0%}" for name, count in update.decisions.items() if count]
    where = f"task {update.task + 1}/{update.tasks} epoch {update.epoch + 1}/{update.epochs}"
    return "  ".join([where, f"{update.steps_per_second:.0f} it/s", *rates])


def describe_ending(record: Record) -> str:
    if record.status != "done":
        return f"{record.status}, {record.error}" if record.status == "failed" else record.error
    return f"accuracy {record.metrics['average_accuracy']:.3f}, {record.seconds:.1f} s"


@contextmanager
def live_lines(jobs: Sequence[Job], shown: bool) -> Iterator[Watch]:
    """Keep a screen up to date on a terminal; elsewhere, print a line whenever a run ends."""
    console = error_console()
    several = len(jobs_by_folder(jobs)) > 1
    lines = {job.folder: Line(job, job.folder.parent.name if several else "") for job in jobs}

    def hear(job: Job, event: Event) -> None:
        lines[job.folder].hear(event)

    if not shown:
        yield lambda job, event: None
    elif console.is_terminal:
        screen = _Screen(lines, console)
        with Live(screen, console=console, refresh_per_second=5, transient=True):
            yield hear
    else:
        yield _log_lines(lines, console)


def _log_lines(lines: dict[Path, Line], console: PlainConsole) -> Watch:
    def hear(job: Job, event: Event) -> None:
        line = lines[job.folder]
        line.hear(event)
        if not isinstance(event, Begun | Update):
            console.print(line.escape_controls, soft_wrap=True)

    return hear


class _Screen:
    """The lines that fit the terminal, drawn again whenever rich asks for them."""

    def __init__(self, lines: dict[Path, Line], console: PlainConsole) -> None:
        self.lines, self.console = lines, console

    def __rich__(self) -> Table:
        lines = list(self.lines.values())
        by_place = _split_by_place(lines)
        visible = select(lines, self.console.height - 2 - sum(map(bool, by_place)))
        table = Table.grid(padding=(0, 2))
        for _ in range(5):
            table.add_column(no_wrap=True)
        for place, shown in _split_by_place(visible).items():
            if place:
                table.add_row(Text(escape_controls(place), "bold"), Text(_count_ended(by_place[place]), "bold"))
            for line in shown:
                table.add_row(*line.cells)
        if len(visible) < len(lines):
            table.add_row("", "", Text(f"and {len(lines) - len(visible)} more", "dim"))
        table.add_row(Text(_count_ended(lines), "bold"), Text("runs"))
        return table


def _split_by_place(lines: Sequence[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.place, []).append(line)
    return found


def _count_ended(lines: Sequence[Line]) -> str:
    """Return the number of ended runs of all: 7/10."""
    return f"{sum(line.state not in ('waiting', 'running') for line in lines)}/{len(lines)}"


def select(lines: list[Line], height: int) -> list[Line]:
    """Return the most important lines that fit, in their own order."""
    if len(lines) <= height:
        return lines
    ranked = sorted(lines, key=lambda line: IMPORTANCE.index(line.state))[: max(1, height - 1)]
    chosen = {id(line) for line in ranked}
    return [line for line in lines if id(line) in chosen]
