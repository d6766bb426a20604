"""The signature of whatever runs jobs: a pool of processes, a Ray cluster, or this process itself."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from sfao.lab.run.pool import Refill, Watch
from sfao.lab.run.record import Record
from sfao.lab.run.worker import Failure, Job


class Runner(Protocol):
    """Runs all the jobs, and returns how each ended; see :func:`sfao.lab.run.pool.run_all`."""

    def __call__(
        self,
        jobs: Sequence[Job],
        *,
        workers: int | None,
        threads: int,
        data_root: Path | None,
        resume: bool,
        watch: Watch,
        stopping: Callable[[], bool],
        log: Sequence[str],
    ) -> Sequence[Record | Failure]: ...


class RefilledRunner(Runner, Protocol):
    """A runner that asks for more jobs when none is left."""

    def __call__(
        self,
        jobs: Sequence[Job],
        *,
        workers: int | None,
        threads: int,
        data_root: Path | None,
        resume: bool,
        watch: Watch,
        stopping: Callable[[], bool],
        log: Sequence[str] = (),
        refill: Refill = lambda: (),
    ) -> Sequence[Record | Failure]: ...
