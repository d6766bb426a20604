"""One run as a task of Ray: what happens on the node that takes it."""

import os
import pickle
import platform
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sfao import __version__
from sfao.lab.launchers.mirror import Changes, Files, Outbox, write_files
from sfao.lab.run.config import load_names
from sfao.lab.run.errors import FolderError
from sfao.lab.run.lock import check_free
from sfao.lab.run.pool import THREAD_VARIABLES
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record, describe_dataset
from sfao.lab.run.worker import Assignment, Failure, Job, Stopped, do_run, summarise_error
from sfao.lab.streams.suite import BENCHMARKS

#: Seconds between two letters of a run, and the longest that it does not know that it is to stop.
BEAT_SECONDS = 0.5
#: Seconds that a process of a lost worker has to end, before the run is begun again in the same folder.
LOCKED_SECONDS = 60.0


@dataclass(frozen=True)
class Placed:
    """The node that has taken a run, and whether the run works in the folder of the comparison itself."""

    node: str
    shared: bool


@dataclass(frozen=True)
class Terms:
    """What holds for all runs of one call."""

    cpus: float
    gpus: float
    #: Runs at a time; None for as many as the cluster has room for.
    workers: int | None
    threads: int
    data_root: Path | None
    resume: bool
    log: tuple[str, ...]
    #: The folder in which the command was called.
    here: Path
    #: The name of a file beside the folders of the runs, by which a node knows whether it sees them.
    mark: str

    @property
    def options(self) -> dict[str, Any]:
        """The options of every task; numerical libraries read their number of threads when they are loaded."""
        return {"max_retries": 0, "runtime_env": {"env_vars": dict.fromkeys(THREAD_VARIABLES, str(self.threads))}}


@dataclass(frozen=True)
class Ticket:
    """One attempt at a run."""

    number: int
    job: Job
    attempt: int = 0
    #: What to write into the record of a run that was begun before, on a worker that was lost.
    notice: str = ""


def make_absolute(job: Job) -> Job:
    """Return the job with its folder as other processes find it."""
    return replace(job, folder=job.folder.absolute())


def run_ticket(ticket: Ticket, terms: Terms, files: Files, mailbox: Any) -> Record | Failure | Stopped:
    """Do one run, and send its progress to the mailbox; `files` are those of its folder, for who cannot see it."""
    _enter(terms)
    try:
        with (
            _find_folder(ticket.job.folder, terms.mark, files) as (folder, shared),
            _Line(ticket, mailbox, None if shared else Outbox(folder)) as line,
        ):
            line.send(Placed(socket.gethostname(), shared))
            return Stopped() if line.stop.is_set() else _do(ticket, terms, folder, line)
    except (FolderError, OSError) as error:
        return Failure(summarise_error(error))


def _do(ticket: Ticket, terms: Terms, folder: Path, line: "_Line") -> Record | Failure | Stopped:
    again = ticket.attempt > 0
    if again:
        _wait_until_free(folder)
    job = replace(ticket.job, folder=folder)
    ending = do_run(Assignment(job, terms.data_root, terms.resume or again, terms.log), line.report, line.stop)
    if isinstance(ending, Record) and ticket.notice:
        ending.warnings.append(ticket.notice)
        ending.save(folder)
    return ending


def _enter(terms: Terms) -> None:
    """Work where the command was called, as a local worker does, if there is such a folder on this machine."""
    if terms.here.is_dir():
        os.chdir(terms.here)
    torch.set_num_threads(terms.threads)


@contextmanager
def _find_folder(folder: Path, mark: str, files: Files) -> Iterator[tuple[Path, bool]]:
    """Yield the run's own folder where this machine sees it, else a temporary one; and whether it is its own."""
    if (folder.parent / mark).is_file():
        yield folder, True
        return
    temporary = Path(tempfile.mkdtemp(prefix="sfao-"))
    try:
        write_files(temporary, files)
        yield temporary, False
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _wait_until_free(folder: Path) -> None:
    """Wait for the process of a lost worker to end; it may be saving its state."""
    until = time.monotonic() + LOCKED_SECONDS
    while True:
        try:
            return check_free(folder)
        except FolderError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


class _Line:
    """The connection of a run with the command: a thread that sends the latest progress and asks whether to stop."""

    def __init__(self, ticket: Ticket, mailbox: Any, outbox: Outbox | None) -> None:
        self._ticket, self._mailbox, self._outbox = ticket, mailbox, outbox
        self._latest: Update | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        #: Set when the run is to stop.
        self.stop = threading.Event()

    def __enter__(self) -> "_Line":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._outbox is not None:
            self.send(self._outbox.collect())

    def report(self, update: Update) -> None:
        """Keep the progress of the run, to be sent with the next beat."""
        self._latest = update

    def send(self, message: Placed | Update | Changes | None) -> None:
        """Send a message, or only ask; without an answer the command is gone, and the run is to stop."""
        import ray

        letter = message and (self._ticket.number, self._ticket.attempt, pickle.dumps(message))
        try:
            if ray.get(self._mailbox.post.remote(letter)):
                self.stop.set()
        except ray.exceptions.RayError:
            self.stop.set()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            update, self._latest = self._latest, None
            self.send(update)
            if self._outbox is not None and self._outbox.has_checkpoint():
                self.send(self._outbox.collect())


@dataclass(frozen=True)
class NodeReport:
    """What a node says of itself before anything runs."""

    versions: dict[str, str]
    #: {benchmark: the description of its data}
    data: dict[str, dict[str, Any]]
    #: The reason for which the node cannot take runs; empty if it can.
    trouble: str = ""
    #: Tells whether the node sees the files of the comparison.
    shared: bool = False


def list_versions() -> dict[str, str]:
    return {"sfao": __version__, "torch": torch.__version__, "Python": platform.python_version()}


def inspect_node(jobs: Sequence[Job], terms: Terms) -> NodeReport:
    """Import and load on this machine what these jobs need, one of each kind, and report it."""
    _enter(terms)
    shared = all((job.folder.parent / terms.mark).is_file() for job in jobs)
    data: dict[str, dict[str, Any]] = {}
    try:
        for job in jobs:
            load_names(job.config)
            if job.config.benchmark not in data:
                data[job.config.benchmark] = describe_dataset(BENCHMARKS[job.config.benchmark].load(terms.data_root))
    except Exception as error:  # of modules of the user's too
        return NodeReport(list_versions(), data, summarise_error(error), shared)
    return NodeReport(list_versions(), data, "", shared)
