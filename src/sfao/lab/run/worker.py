"""The worker's side of the pool: a process that executes one run after another until it is told to quit."""

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

import torch

from sfao.lab.run.config import RunConfig, load_names
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.execute import execute
from sfao.lab.run.progress import Report, Update
from sfao.lab.run.record import Record
from sfao.lab.run.run import CHECKPOINT_SECONDS
from sfao.lab.run.signals import STOP_SIGNALS, unblock_signals

#: Seconds between two updates of a run.
UPDATE_SECONDS = 0.2
#: Seconds that a run has to save its state once the parent is gone.
ORPHAN_SECONDS = 30.0


@dataclass(frozen=True)
class Job:
    """A run to execute: its settings, its folder, and how often it saves its state there."""

    config: RunConfig
    folder: Path
    checkpoint_seconds: float = CHECKPOINT_SECONDS


@dataclass(frozen=True)
class Assignment:
    job: Job
    data_root: Path | None
    resume: bool
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Begun:
    """The worker is up and has taken the run."""


@dataclass(frozen=True)
class Failure:
    """A run that ended in an exception: its message and its traceback."""

    error: str
    traceback: str = ""


@dataclass(frozen=True)
class Stopped:
    """The run was asked to stop, and its state is saved."""


#: Messages of a worker: the progress of a run, or its end.
Message = Begun | Update | Record | Failure | Stopped


def work(pipe: Connection, threads: int) -> None:
    """Execute the assignments that come through the pipe, until None."""
    # From here on the parent handles Ctrl-C and a closed terminal, and a plain `kill` lets the run save its state.
    stop = threading.Event()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    unblock_signals()
    os.dup2(2, 1)  # standard output belongs to the parent, which may print JSON
    torch.set_num_threads(threads)
    inbox: SimpleQueue[Assignment | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox, stop), daemon=True).start()
    try:
        while (assignment := inbox.get()) is not None:
            pipe.send(Begun())
            ending = do_run(assignment, _Throttled(pipe.send), stop)
            pipe.send(ending)
            if not isinstance(ending, Record):
                break  # a process with an unforeseen error is not used again
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone


def _listen(pipe: Connection, inbox: "SimpleQueue[Assignment | None]", stop: threading.Event) -> None:
    """Pass assignments on; a stop, or the end of the parent, interrupts a run between two steps."""
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            inbox.put(None)
            stop.set()
            time.sleep(ORPHAN_SECONDS)
            os._exit(1)
        if isinstance(message, Stopped):
            stop.set()
        else:
            inbox.put(message)


def do_run(assignment: Assignment, report: Report, stop: threading.Event) -> Record | Failure | Stopped:
    """Execute an assignment and return how it ended; a run is interrupted between two steps when `stop` is set."""
    job = assignment.job
    try:
        load_names(job.config)
        return execute(
            job.config,
            job.folder,
            data_root=assignment.data_root,
            resume=assignment.resume,
            checkpoint_seconds=job.checkpoint_seconds,
            report=report,
            stopping=stop.is_set,
            log=assignment.log,
        )
    except Interrupted:
        return Stopped()
    except BaseException as error:  # an error of one run must not end the others
        return Failure(summarise_error(error), traceback.format_exc())


def summarise_error(error: BaseException) -> str:
    """Return `TypeOfError: message`, on one line of reasonable length."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


class _Throttled:
    """Sends at most one update per `UPDATE_SECONDS` and drops the others."""

    def __init__(self, send: Callable[[Update], None]) -> None:
        self._send = send
        self._last = float("-inf")

    def __call__(self, update: Update) -> None:
        now = time.monotonic()
        if now - self._last >= UPDATE_SECONDS:
            self._last = now
            self._send(update)
