"""Many runs at once, in processes of this machine whose deaths do not affect each other."""

import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue

import torch

from sfao.lab.run.config import load_names
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.jobs import Begun, Failure, Job, Refill, Stopped, Watch
from sfao.lab.run.loop import execute
from sfao.lab.run.progress import Report, Update
from sfao.lab.run.record import Record
from sfao.lab.run.signals import STOP_SIGNALS, block_signals, unblock_signals

#: Seconds between two checks whether to stop.
POLL_SECONDS = 0.1
#: Seconds between two updates of a run.
UPDATE_SECONDS = 0.2
#: Seconds that runs have to save their state once they are asked to stop, or the parent is gone.
GRACE_SECONDS = 30.0
#: Environment variables from which numerical libraries read their number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Assignment:
    """What a worker is to do."""

    job: Job
    data_root: Path | None
    resume: bool
    log: tuple[str, ...] = ()


Ending = Record | Failure | Stopped


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    threads: int = 1,
    data_root: Path | None = None,
    resume: bool = False,
    watch: Watch = lambda job, event: None,
    stopping: Callable[[], bool] = lambda: False,
    refill: Refill = lambda: (),
    log: Sequence[str] = (),
) -> list[Record | Failure]:
    """Run jobs in processes of this machine, by default as many at a time as the cores allow; see `Runner`.

    Processes may share a GPU: `workers` is then limited by its memory.
    """
    pool = _Pool(jobs, threads, data_root, resume, watch, stopping, refill, log)
    try:
        pool.hire(workers or max(1, cores() // threads))
        while pool.busy:
            if stopping():
                raise Interrupted(pool.stop())
            pool.listen(POLL_SECONDS)
    except Interrupted:
        raise
    except Exception:  # of whoever watches, a terminal that is gone say: the runs keep what they have done
        pool.watch = lambda job, event: None
        pool.stop()
        raise
    finally:
        pool.dismiss()
    if len(pool.endings) < len(pool.jobs):  # a signal to all processes: the last run stopped before it was asked to
        raise Interrupted
    return [pool.endings[number] for number in range(len(pool.jobs))]


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    #: Index of its job.
    job: int = -1
    begun: bool = False

    def send(self, message: Assignment | Stopped) -> None:
        with suppress(OSError):  # it died just now: listening will find out
            self.pipe.send(message)

    def receive(self) -> Begun | Update | Ending:
        """Return the next message; the death of the process is a failure."""
        try:
            message: Begun | Update | Ending = self.pipe.recv()
            return message
        except (EOFError, OSError):
            return _explain_death(self.process)


class _Pool:
    """The workers and their jobs; a worker is released when no job is left."""

    def __init__(
        self,
        jobs: Sequence[Job],
        threads: int,
        data_root: Path | None,
        resume: bool,
        watch: Watch,
        stopping: Callable[[], bool],
        refill: Refill,
        log: Sequence[str],
    ) -> None:
        self.jobs, self.threads, self.watch, self.stopping = list(jobs), threads, watch, stopping
        self.data_root, self.resume, self.refill, self.log = data_root, resume, refill, tuple(log)
        self.endings: dict[int, Record | Failure] = {}
        self.busy: list[_Worker] = []
        self._released: list[_Worker] = []
        self._waiting = deque(range(len(jobs)))

    def hire(self, count: int) -> None:
        for _ in range(count):
            if not self._has_jobs():
                return
            worker = _Worker(*start_worker(self.threads))
            self.busy.append(worker)
            self._assign(worker)

    def _has_jobs(self) -> bool:
        """Return True if a job is waiting, after asking for more if none is."""
        if not self._waiting:
            more = self.refill()
            self._waiting.extend(range(len(self.jobs), len(self.jobs) + len(more)))
            self.jobs.extend(more)
        return bool(self._waiting)

    def _assign(self, worker: _Worker) -> None:
        worker.job, worker.begun = self._waiting.popleft(), False
        worker.send(Assignment(self.jobs[worker.job], self.data_root, self.resume, self.log))

    def listen(self, seconds: float) -> None:
        """Handle the messages that arrive from workers within this time."""
        ready = wait([worker.pipe for worker in self.busy], timeout=seconds)
        for worker in [worker for worker in self.busy if worker.pipe in ready]:
            self._handle(worker, worker.receive())

    def _handle(self, worker: _Worker, message: Begun | Update | Ending) -> None:
        if isinstance(message, Begun | Update):
            worker.begun = True
            self.watch(self.jobs[worker.job], message)
        elif isinstance(message, Record):
            self._end(worker, message)
            if self._has_jobs():
                self._assign(worker)
            else:
                self._release(worker)
        elif isinstance(message, Stopped) and self.stopping():
            self._release(worker)  # its state is saved, and nothing is to follow
        else:  # a process with an unforeseen error is not used again
            asked = Failure("its process was asked to stop (SIGTERM)")
            self._end(worker, asked if isinstance(message, Stopped) else message)
            self._release(worker)
            self.hire(1)

    def _end(self, worker: _Worker, ending: Record | Failure) -> None:
        self.endings[worker.job] = ending
        self.watch(self.jobs[worker.job], ending)

    def _release(self, worker: _Worker) -> None:
        self.busy.remove(worker)
        self._released.append(worker)
        worker.pipe.close()

    def stop(self) -> dict[str, str]:
        """Ask every run to save its state; return {run: reason} of those that keep their last checkpoint instead."""
        unsaved: dict[str, str] = {}
        self.listen(0)  # so that it is known who has begun
        for worker in self.busy:
            if worker.begun:
                worker.send(Stopped())
            else:
                worker.process.kill()  # still loading its libraries: nothing to save
        deadline = time.monotonic() + GRACE_SECONDS
        while self.busy and (left := deadline - time.monotonic()) > 0:
            ready = wait([worker.pipe for worker in self.busy], timeout=left)
            for worker in [worker for worker in self.busy if worker.pipe in ready]:
                message = worker.receive()
                if isinstance(message, Failure) and worker.begun:
                    unsaved[self.jobs[worker.job].folder.name] = message.error
                if not isinstance(message, Begun | Update):
                    self._release(worker)
        late = [self.jobs[worker.job].folder.name for worker in self.busy if worker.begun]
        return {**unsaved, **dict.fromkeys(late, f"not done within {GRACE_SECONDS:.0f} s")}

    def dismiss(self) -> None:
        """End all processes, however the pool ended."""
        for worker in self.busy:
            worker.process.kill()
        for worker in (*self.busy, *self._released):
            worker.pipe.close()
            worker.process.join(timeout=GRACE_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()


def _explain_death(process: SpawnProcess) -> Failure:
    process.join()
    code = process.exitcode or 0
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (kill -9, or out of memory)" if name == "SIGKILL" else ""
        return Failure(f"its process was killed by {name}{hint}")
    return Failure(f"its process ended with exit code {code}")


def start_worker(threads: int) -> tuple[SpawnProcess, Connection]:
    """Return a process that waits for assignments, and the pipe to it.

    It is spawned and not forked from a server, though that would load torch once: a server has the environment, limits
    and files of its own start, and nobody can stop while it loads.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, threads), daemon=True)
    resource_tracker.ensure_running()  # which would unblock the signals if it had to start below
    with block_signals(), _limit_threads(threads):
        process.start()
    theirs.close()  # so that the end of the worker is the end of the pipe
    return process, ours


@contextmanager
def _limit_threads(threads: int) -> Iterator[None]:
    """Set the environment variables from which numerical libraries read their number of threads when loaded."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# -- In the worker's process -------------------------------------------------------------------------------


def work(pipe: Connection, threads: int) -> None:
    """Execute the assignments that come through the pipe, until it is closed."""
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
    with suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
        while (assignment := inbox.get()) is not None:
            pipe.send(Begun())
            pipe.send(do_run(assignment, throttle(pipe.send), stop))


def _listen(pipe: Connection, inbox: "SimpleQueue[Assignment | None]", stop: threading.Event) -> None:
    """Pass assignments on; a stop, or the end of the parent, interrupts a run between two steps."""
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            inbox.put(None)
            stop.set()
            time.sleep(GRACE_SECONDS)
            os._exit(1)
        if isinstance(message, Stopped):
            stop.set()
        else:
            inbox.put(message)


def do_run(assignment: Assignment, report: Report, stop: threading.Event) -> Ending:
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


def throttle(send: Report) -> Report:
    """Return a report that sends at most one update per `UPDATE_SECONDS` and drops the others."""
    last = float("-inf")

    def report(update: Update) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= UPDATE_SECONDS:
            last = now
            with suppress(OSError):  # the parent is gone: the listener stops the run, which saves its state
                send(update)

    return report
