"""Many runs on one screen while they are going on: a line for each."""

from collections.abc import Callable, Iterator, Sequence
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
from sfao.lab.run.jobs import Begun, Event, Failure, Job, Lost, Skipped, Watch
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record

#: {state: style}, the most important first: where there are more runs than lines, the others are only counted.
STYLES = {
    "running": "cyan",
    "failed": "red",
    "diverged": "yellow",
    "waiting": "dim",
    "done": "green",
    "skipped": "green",
}


@dataclass
class Line:
    """The state of a run."""

    name: str
    state: str = "waiting"
    detail: str = ""
    share: float = 0.0

    def hear(self, event: Event) -> None:
        if isinstance(event, Begun):
            self.state, self.detail = "running", "starting"
        elif isinstance(event, Update):
            self.state, self.share, self.detail = "running", event.step / event.steps, describe_progress(event)
        elif isinstance(event, Failure):
            self.state, self.detail = "failed", event.error
        elif isinstance(event, Lost):
            self.state, self.detail = "waiting", f"{event.reason}; retry {event.attempt} of {event.most}"
        elif isinstance(event, Skipped):
            self.state, self.detail = "skipped", f"finished before: {describe_end(event.record)}"
        else:
            self.state, self.detail = event.status, describe_end(event)

    @property
    def text(self) -> str:
        return f"{self.name}: {self.state}{': ' * bool(self.detail)}{self.detail}"

    @property
    def cells(self) -> tuple[RenderableType, ...]:
        bar = ProgressBar(total=1.0, completed=self.share, width=20) if self.state == "running" else Text("")
        detail = Text(escape_controls(self.detail), overflow="ellipsis")
        return self.name, Text(self.state, STYLES[self.state]), bar, detail


def describe_progress(update: Update) -> str:
    """Return the position of a run, its speed, its loss, and the decisions of its gate so far."""
    total = sum(update.decisions.values())
    rates = [f"{name} {count / total:.0%}" for name, count in update.decisions.items() if count]
    where = f"task {update.task + 1}/{update.tasks} epoch {update.epoch + 1}/{update.epochs}"
    return "  ".join([where, f"{update.steps_per_second:.0f} it/s", f"loss {update.loss:.3f}", *rates])


def describe_end(record: Record) -> str:
    if record.status != "done":
        return record.error
    return f"accuracy {record.metrics['average_accuracy']:.3f}, {record.seconds:.1f} s"


@contextmanager
def live_lines(jobs: Sequence[Job], *, shown: bool, footer: Callable[[], str] = lambda: "") -> Iterator[Watch]:
    """Keep a screen up to date on a terminal; elsewhere, print a line whenever a run ends.

    `footer` returns text for the last line. A job that is new gets a line of its own.
    """
    console = error_console()
    is_one_folder = len({job.folder.parent for job in jobs}) < 2
    lines = {job.folder: Line(_name(job, is_one_folder)) for job in jobs}
    if len(jobs) == 1:  # the user may have named its folder
        lines[jobs[0].folder].name = f"{jobs[0].config.method} seed {jobs[0].config.seed}"

    def hear(job: Job, event: Event) -> None:
        line = lines.setdefault(job.folder, Line(_name(job, is_one_folder)))
        line.hear(event)
        if shown and not console.is_terminal and not isinstance(event, Begun | Update):
            console.print(line.text, soft_wrap=True)

    if shown and console.is_terminal:
        with Live(Screen(lines, console, footer), console=console, refresh_per_second=5, transient=True):
            yield hear
    else:
        yield hear


def _name(job: Job, is_one_folder: bool) -> str:
    """Return the method and, where the folder tells it, the variant, and the seed: `sfao-accept0.90 seed 3`."""
    name = job.folder.name.removesuffix(f"-{job.config.seed}")
    return f"{name if is_one_folder else f'{job.folder.parent.name}/{name}'} seed {job.config.seed}"


@dataclass
class Screen:
    """The lines that fit the terminal, drawn again whenever rich asks for them."""

    lines: dict[Path, Line]
    console: PlainConsole
    footer: Callable[[], str]

    def __rich__(self) -> Table:
        lines = list(self.lines.values())
        room = max(1, self.console.height - 3)
        if len(lines) > room:
            ranked = sorted(range(len(lines)), key=lambda number: list(STYLES).index(lines[number].state))
            lines = [lines[number] for number in sorted(ranked[:room])]
        table = Table.grid(padding=(0, 2), expand=True)
        for ratio in (None, None, None, 1):  # where there is no room, the details are cut
            table.add_column(no_wrap=True, ratio=ratio)
        for line in lines:
            table.add_row(*line.cells)
        ended = sum(line.state not in ("waiting", "running") for line in self.lines.values())
        table.add_row(Text(f"{ended}/{len(self.lines)} runs ended", "bold"), "", "", Text(self.footer(), "bold"))
        return table
