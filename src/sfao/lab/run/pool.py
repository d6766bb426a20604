"""Many runs at once, in processes whose deaths do not affect each other."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from sfao.lab.run.errors import Interrupted
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record
from sfao.lab.run.signals import block_signals
from sfao.lab.run.worker import Assignment, Begun, Failure, Job, Message, Stopped, work

#: Seconds between two looks at whether to stop.
LOOK_SECONDS = 0.1
#: Seconds that runs have to save their state once they are asked to stop.
GRACE_SECONDS = 30.0
#: Environment variables from which numerical libraries read their number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Skipped:
    """The run was finished already."""

    record: Record


@dataclass(frozen=True)
class Lost:
    """The worker or the node of the run is lost, and the run is begun again for the `attempt`-th time of `most`."""

    reason: str
    attempt: int
    most: int


#: Events of a run that a pool reports; the last is its record or its failure.
Event = Begun | Update | Skipped | Lost | Record | Failure
Watch = Callable[[Job, Event], None]
Refill = Callable[[], Sequence[Job]]


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
    """Run all the jobs, `workers` at a time (by default as many as the cores allow), each on `threads` threads.

    Each run logs to the loggers that `log` names. When a worker has nothing to do, `refill` is called for more jobs;
    none mean that there will be none.

    A run that fails, or whose process dies, returns a Failure in its place, and the others continue. When `stopping`
    returns True, the runs save their state and Interrupted is raised.
    """
    pool = _Pool(jobs, threads, data_root, resume, watch, stopping, refill, log)
    try:
        pool.hire(workers or max(1, cores() // threads))
        while pool.busy:
            if stopping():
                raise Interrupted(pool.stop())
            pool.listen(LOOK_SECONDS)
    except Interrupted:
        raise
    except Exception:  # of whoever watches, a terminal that is gone say: the runs keep what they have done
        pool.watch = lambda job, event: None
        pool.stop()
        raise
    finally:
        pool.dismiss()
    if len(pool.endings) < len(
        pool.jobs
    ):  # a signal to all processes at once: the last run stopped before it was asked to
        raise Interrupted
    return [pool.endings[number] for number in range(len(pool.jobs))]


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    #: Index of the job it is doing.
    job: int
    begun: bool = False


class _Pool:
    """The workers and their jobs; a worker is dismissed when no job is left."""

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
        self.idle: list[_Worker] = []
        self._waiting = deque(range(len(jobs)))

    def hire(self, count: int) -> None:
        for _ in range(count):
            if not self._find_jobs():
                return
            process, pipe = start_worker(self.threads)
            worker = _Worker(process, pipe, -1)
            self.busy.append(worker)
            self._assign(worker)

    def _find_jobs(self) -> bool:
        """Tell whether a job is waiting, after asking for more if none is."""
        if not self._waiting:
            more = self.refill()
            self._waiting.extend(range(len(self.jobs), len(self.jobs) + len(more)))
            self.jobs.extend(more)
        return bool(self._waiting)

    def _assign(self, worker: _Worker) -> None:
        worker.job, worker.begun = self._waiting.popleft(), False
        _tell(worker, Assignment(self.jobs[worker.job], self.data_root, self.resume, self.log))

    def listen(self, seconds: float) -> None:
        """Handle the messages that arrive from workers within this time."""
        ready = wait([worker.pipe for worker in self.busy], timeout=seconds)
        for worker in [worker for worker in self.busy if worker.pipe in ready]:
            self._hear(worker)

    def _hear(self, worker: _Worker) -> None:
        try:
            message: Message = worker.pipe.recv()
        except (EOFError, OSError):
            message = _explain_death(worker.process)
        if isinstance(message, Begun | Update):
            worker.begun = True
            self.watch(self.jobs[worker.job], message)
        elif isinstance(message, Record):
            self._end(worker, message)
            self._go_on(worker)
        elif isinstance(message, Stopped) and self.stopping():
            self._let_go(worker)  # its state is saved, and nothing is to follow
        else:
            failure = Failure("its process was asked to stop (SIGTERM)") if isinstance(message, Stopped) else message
            self._end(worker, failure)
            self._let_go(worker)
            self.hire(1)

    def _end(self, worker: _Worker, ending: Record | Failure) -> None:
        self.endings[worker.job] = ending
        self.watch(self.jobs[worker.job], ending)

    def _go_on(self, worker: _Worker) -> None:
        if self._find_jobs():
            self._assign(worker)
        else:
            self.busy.remove(worker)
            self.idle.append(worker)
            _tell(worker, None)

    def _let_go(self, worker: _Worker) -> None:
        self.busy.remove(worker)
        self.idle.append(worker)
        worker.pipe.close()

    def stop(self) -> dict[str, str]:
        """Ask every run to save its state; return {run: reason} of those that keep their last checkpoint instead."""
        unsaved: dict[str, str] = {}
        self.listen(0)  # so that it is known who has begun
        for worker in self.busy:
            if worker.begun:
                _tell(worker, Stopped())
            else:
                worker.process.kill()  # still loading its libraries: nothing to save
        deadline = time.monotonic() + GRACE_SECONDS
        while self.busy and (left := deadline - time.monotonic()) > 0:
            for pipe in wait([worker.pipe for worker in self.busy], timeout=left):
                worker = next(worker for worker in self.busy if worker.pipe is pipe)
                ending = _read_ending(worker)
                if isinstance(ending, Failure) and worker.begun:
                    unsaved[self._name(worker)] = ending.error
                if ending is not None:
                    self._let_go(worker)
        late = f"not done within {GRACE_SECONDS:.0f} s"
        return {**unsaved, **{self._name(worker): late for worker in self.busy if worker.begun}}

    def _name(self, worker: _Worker) -> str:
        return self.jobs[worker.job].folder.name

    def dismiss(self) -> None:
        """End all processes, however the pool ended."""
        for worker in self.busy:
            worker.process.kill()
        for worker in (*self.busy, *self.idle):
            worker.pipe.close()
            worker.process.join(timeout=GRACE_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()


def _tell(worker: _Worker, message: Assignment | Stopped | None) -> None:
    with suppress(OSError):  # it died just now: listening will find out
        worker.pipe.send(message)


def _read_ending(worker: _Worker) -> Record | Failure | Stopped | None:
    """Return how a run ended, as its worker says next or shows by its own end; None while it goes on."""
    try:
        message: Message = worker.pipe.recv()
    except (EOFError, OSError):
        return _explain_death(worker.process)
    return None if isinstance(message, Begun | Update) else message


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
