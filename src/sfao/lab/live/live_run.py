"""A run as its page shows it: its position, telemetry and speed, put together when a page asks."""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Condition
from typing import Any

from sfao.lab.console import escape_controls, shorten
from sfao.lab.live.history import History, LineReader, downsample
from sfao.lab.live.status import Throughput, describe_rate, describe_seconds, read_status
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.loop import Run
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record
from sfao.lab.run.run_log import STEPS
from sfao.lab.safe_io import parse_json

#: Seconds for which all pages get the same state: many pages cost a run no more than one.
REFRESH = 0.5
#: Bytes of telemetry that are parsed at a time: a page that is opened late does not delay training.
MAX_PARSED = 2**18
LONGEST_ERROR = 1000
RESUME = "go on with the same command and --resume"


@dataclass(frozen=True)
class Ending:
    """How a run ended; `command` builds its report, where there is a record."""

    status: str
    headline: str
    text: str = ""
    command: str = ""


def describe_record(record: Record, folder: Path) -> Ending:
    """Return the ending of a run that left a record."""
    command = escape_controls(f"sfao report {shlex.quote(str(folder))}")
    if record.status != "done":
        return Ending(record.status, f"The run {record.status}", _shorten(record.error), command)
    accuracy, forgetting = (record.metrics[f"average_{name}"] for name in ("accuracy", "forgetting"))
    results = f"average accuracy {accuracy:.3f}, forgetting {forgetting:.3f}"
    text = f"After {describe_seconds(record.seconds)} of training: {results}."
    return Ending("done", "The run is done", text, command)


def describe_error(error: BaseException) -> Ending:
    """Return the ending of a run that left no record."""
    if isinstance(error, Interrupted):
        return Ending("interrupted", "The run was stopped", _shorten(error.describe(RESUME)))
    if isinstance(error, KeyboardInterrupt):
        return Ending("interrupted", "The run was interrupted", RESUME.capitalize())
    return Ending("failed", "The run failed", _shorten(f"{type(error).__name__}: {error}"))


def _shorten(text: str) -> str:
    return escape_controls(shorten(" ".join(text.split()), LONGEST_ERROR))


class LiveRun:
    """The run of a command, for other threads; the training thread only reports its steps."""

    def __init__(self, folder: Path, announce: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self.ending: Ending | None = None
        self._announce, self._clock = announce, clock
        self._run: Run | None = None
        self._began, self._throughput = clock(), Throughput()
        self._reader, self._history, self._damage = LineReader(folder / STEPS), History(), ""
        self._state, self._written = "", float("-inf")
        self._watchers = 0
        self._changed = Condition()

    # -- For the command --------------------------------------------------------------------------------

    def begin(self, run: Run) -> None:
        """Show this run, which is about to start."""
        self._run, self._began = run, self._clock()
        self._announce()

    def hear(self, update: Update) -> None:
        """Note a step."""
        self._throughput.add(update.step, self._clock())

    def finish(self, record: Record) -> None:
        """Show how the run ended that left this record."""
        self.end(describe_record(record, self.folder))

    def end(self, ending: Ending) -> None:
        """Show how the run ended."""
        with self._changed:
            self.ending, self._state = ending, ""
            self._changed.notify_all()

    # -- For the server ---------------------------------------------------------------------------------

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count a page that gets every state."""
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
        """Wait for the end of the run, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self.ending is not None, seconds)

    def wait_for_watchers(self, seconds: float) -> None:
        """Wait until every page has the last state, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._watchers == 0, seconds)

    def as_json(self) -> str:
        """Return all that the page shows."""
        with self._changed:
            if not self._state or self._clock() - self._written > REFRESH:
                self._written = self._clock()
                self._state = json.dumps(self._read_state(), separators=(",", ":"))
            return self._state

    def _read_state(self) -> dict[str, Any]:
        troubles = self._read_telemetry()
        state: dict[str, Any] = {"title": "A run that has not begun", "lead": "", "place": "Loading data and model"}
        if self._run is not None:
            state = read_status(self._run)
            state["time"] = self._describe_time(state["steps"])
        state["notices"] = [*state.get("notices", []), *troubles]
        ending = None if self.ending is None else asdict(self.ending)
        folder = escape_controls(str(self.folder))
        return {**state, "folder": folder, "ending": ending, "history": self._history.as_json()}

    def _describe_time(self, steps: int) -> str:
        now, rate = self._clock(), self._throughput.rate
        parts = [f"{describe_seconds(now - self._began)} since the command began"]
        left = self._throughput.seconds_left(steps, now)
        if rate is not None and left is not None and self.ending is None:
            parts = [f"about {describe_seconds(left)} left", describe_rate(rate), *parts]
        return ", ".join(parts)

    def _read_telemetry(self) -> list[str]:
        """Add the new lines of steps.jsonl; return what cannot be read, which does not affect the run."""
        try:
            lines, was_cut = self._reader.read()
        except (OSError, ValueError) as error:
            return [f"{STEPS} cannot be read: {_shorten(str(error))}"]
        if was_cut:
            self._history, self._damage = History(), ""
        for line in downsample(lines, MAX_PARSED):
            try:
                self._history.add(parse_json(line, finite=False))
            except (ValueError, TypeError, KeyError, AttributeError):
                self._damage = f"a line of {STEPS} is damaged; this page leaves it out"
        return [self._damage] if self._damage else []
