"""A run as its page sees it: put together from its position, its telemetry and its pace, whenever somebody looks."""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Condition, RLock

from sfao.lab.console import escape_controls, shorten
from sfao.lab.live.history import History
from sfao.lab.live.sight import (
    Pace,
    describe_place,
    describe_rate,
    describe_run,
    describe_seconds,
    look_at,
    summarise,
)
from sfao.lab.live.tail import Tail, thin_out
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.loop import Run
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record
from sfao.lab.run.run_log import STEPS
from sfao.lab.safe_io import parse_json

#: Seconds for which everybody who looks gets the same: many pages cost a run no more than one.
REFRESH = 0.5
#: Bytes of telemetry that are looked into at a time: training does not wait for a page that is opened late.
MOST_PARSED = 2**18
#: Letters of an error on the page.
LONGEST_ERROR = 1000

RESUME = "go on with the same command and --resume"


@dataclass(frozen=True)
class Ending:
    """How a run ended, as the page says it; `command` makes the report of it, where there is a record."""

    status: str
    headline: str
    text: str = ""
    command: str = ""


def describe_record(record: Record, folder: Path) -> Ending:
    """Return the ending of a run that left a record."""
    command = f"sfao report {shlex.quote(str(folder))}"
    if record.status == "done":
        accuracy, forgetting = (record.metrics[f"average_{name}"] for name in ("accuracy", "forgetting"))
        text = (
            f"After {describe_seconds(record.seconds)} of training: average accuracy {accuracy:.3f}, "
            f"forgetting {forgetting:.3f}."
        )
        return Ending("done", "The run is done", text, escape_controls(command))
    return Ending(record.status, f"The run {record.status}", _shorten(record.error), escape_controls(command))


def describe_error(error: BaseException) -> Ending:
    """Return the ending of a run that left none."""
    if isinstance(error, Interrupted):
        return Ending("interrupted", "The run was stopped", _shorten(error.describe(RESUME)))
    if isinstance(error, KeyboardInterrupt):
        return Ending("interrupted", "The run was interrupted", RESUME.capitalize())
    return Ending("failed", "The run failed", _shorten(f"{type(error).__name__}: {error}"))


def _shorten(text: str) -> str:
    return escape_controls(shorten(" ".join(text.split()), LONGEST_ERROR))


class LiveRun:
    """The run of a command, for threads that look at it; the training thread does no more than note its pace."""

    def __init__(self, folder: Path, tell: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self.ending: Ending | None = None
        self._tell, self._clock = tell, clock
        self._run: Run | None = None
        self._began = clock()
        self._pace = Pace()
        self._tail, self._history = Tail(folder / STEPS), History()
        self._unreadable, self._damaged = "", ""
        self._text, self._made = "", float("-inf")
        self._watchers = 0
        self._looking = RLock()
        self._changed = Condition()

    # -- What the command says --------------------------------------------------------------------------

    def begin(self, run: Run) -> None:
        """Show this run, which is about to start."""
        self._run, self._began = run, self._clock()
        self._tell()

    def hear(self, update: Update) -> None:
        self._pace.note(update.step, self._clock())

    def finish(self, record: Record) -> None:
        """Show how the run ended that left this record."""
        self.end(describe_record(record, self.folder))

    def end(self, ending: Ending) -> None:
        """Show how the run ended, to those who look now and to nobody else."""
        with self._looking:
            self.ending, self._text = ending, ""
        with self._changed:
            self._changed.notify_all()

    # -- What the page asks for ---------------------------------------------------------------------------

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count one who is told of every change."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._changed:
            self._watchers += change
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the run, or so long."""
        with self._changed:
            self._changed.wait_for(lambda: self.ending is not None, seconds)

    def wait_for_watchers(self, seconds: float) -> None:
        """Wait until everybody knows how the run ended, or so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._watchers == 0, seconds)

    def as_json(self) -> str:
        """Return all that the page shows."""
        with self._looking:
            if not self._text or self._clock() - self._made > REFRESH:
                self._made = self._clock()
                self._text = self._write()
            return self._text

    def _write(self) -> str:
        self._read_telemetry()
        ending = None if self.ending is None else asdict(self.ending)
        about = {"folder": escape_controls(str(self.folder)), "ending": ending, **self._describe()}
        return f'{json.dumps(about)[:-1]}, "history": {self._history.as_json()}}}'

    def _describe(self) -> dict[str, object]:
        troubles = [text for text in (self._unreadable, self._damaged) if text]
        if self._run is None:
            place = "Loading data and model"
            return {"title": "A run that has not begun", "lead": "", "place": place, "notices": troubles}
        sight, (title, lead) = look_at(self._run), describe_run(self._run)
        return {
            "title": title,
            "lead": lead,
            "place": describe_place(sight),
            "time": self._describe_time(sight.steps),
            "step": sight.step,
            "steps": sight.steps,
            "tasks": len(sight.names),
            "names": sight.names,
            "initial": sight.initial,
            "rows": sight.rows,
            "summary": summarise(sight.rows),
            "notices": [*sight.notices, *troubles],
        }

    def _describe_time(self, steps: int) -> str:
        now, rate = self._clock(), self._pace.rate
        parts = [f"{describe_seconds(now - self._began)} since the command began"]
        left = self._pace.seconds_left(steps, now)
        if rate is not None and left is not None and self.ending is None:
            parts = [f"about {describe_seconds(left)} left", describe_rate(rate), *parts]
        return ", ".join(parts)

    def _read_telemetry(self) -> None:
        """Add the lines that are new; what cannot be read is told on the page and leaves the run alone."""
        self._unreadable = ""
        try:
            new = self._tail.read()
        except (OSError, ValueError) as error:
            self._unreadable = f"{STEPS} cannot be read: {_shorten(str(error))}"
            return
        if new.anew:
            self._history, self._damaged = History(), ""
        for line in thin_out(new.lines, MOST_PARSED):
            try:
                self._history.add(parse_json(line, finite=False))
            except (ValueError, TypeError, KeyError, AttributeError):
                self._damaged = f"a line of {STEPS} is damaged; this page leaves it out"
