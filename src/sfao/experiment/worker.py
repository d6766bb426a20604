"""The other end of the pool: a process that does one run after another until it is told to quit."""

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

from sfao.experiment.config import RunConfig
from sfao.experiment.errors import Interrupted
from sfao.experiment.execute import execute
from sfao.experiment.record import Record
from sfao.experiment.run import Report, Update

#: Seconds between two updates of a run.
UPDATE_SECONDS = 0.2
#: Seconds that a run has to save its state once the parent is gone.
ORPHAN_SECONDS = 30.0


@dataclass(frozen=True)
class Job:
    """A run to do: its settings and its folder."""

    config: RunConfig
    folder: Path


@dataclass(frozen=True)
class Assignment:
    job: Job
    data_root: Path | None
    resume: bool


@dataclass(frozen=True)
class Begun:
    """The worker is up and has taken the run."""


@dataclass(frozen=True)
class Failure:
    """A run that ended in an exception: what to say, and what to debug with."""

    error: str
    traceback: str = ""


@dataclass(frozen=True)
class Stopped:
    """The run was asked to stop, and its state is saved."""


#: What a worker tells: how a run goes on, or how it ended.
Message = Begun | Update | Record | Failure | Stopped


def work(pipe: Connection, threads: int) -> None:
    """Do what comes through the pipe: assignments, until None."""
    # From here on Ctrl-C is the parent's business, and a plain `kill` lets the run save its state.
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    os.dup2(2, 1)  # standard output is the parent's, who may be printing JSON
    torch.set_num_threads(threads)
    inbox: SimpleQueue[Assignment | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, inbox, stop), daemon=True).start()
    try:
        while (assignment := inbox.get()) is not None:
            pipe.send(Begun())
            ending = _do(assignment, _Throttled(pipe.send), stop)
            pipe.send(ending)
            if not isinstance(ending, Record):
                break  # a process in which something unforeseen happened is not used again
    except (BrokenPipeError, ConnectionResetError):
        pass  # nobody is left to tell


def _listen(pipe: Connection, inbox: "SimpleQueue[Assignment | None]", stop: threading.Event) -> None:
    """Pass assignments on; a stop, or the end of the parent, reaches a run in the middle of its steps."""
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


def _do(assignment: Assignment, report: Report, stop: threading.Event) -> Record | Failure | Stopped:
    job = assignment.job
    try:
        return execute(
            job.config,
            job.folder,
            data_root=assignment.data_root,
            resume=assignment.resume,
            report=report,
            stopping=stop.is_set,
        )
    except Interrupted:
        return Stopped()
    except BaseException as error:  # whatever it is, it is this run's alone
        return Failure(in_one_line(error), traceback.format_exc())


def in_one_line(error: BaseException) -> str:
    """`ValueError: what it says`, on one line of reasonable length."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


class _Throttled:
    """Passes on an update now and then; the others are old by the time anyone would see them."""

    def __init__(self, send: Callable[[Update], None]) -> None:
        self._send = send
        self._last = float("-inf")

    def __call__(self, update: Update) -> None:
        now = time.monotonic()
        if now - self._last >= UPDATE_SECONDS:
            self._last = now
            self._send(update)
