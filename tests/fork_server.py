"""Processes for tests, forked from one that has loaded torch, and so started without those seconds."""

import os
from collections.abc import Mapping
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd

#: What is loaded before: the most of what commands, workers and ranks load, and nothing that leaves more than memory.
PRELOADED = [
    "sfao.lab.cli.app",
    "sfao.lab.run.compare",
    "sfao.lab.run.pool",
    "sfao.lab.console",
    "sfao.lab.report.comparison_table",
    "sfao.lab.report.page",
    "tests.distributed.sharded",
    "sfao.lab.data.dataset",
    "torch._dynamo",  # torch loads it with the first optimizer
    "torch.distributed.checkpoint",
]
ERRORS = 2
context = get_context("forkserver")
context.set_forkserver_preload(PRELOADED)


def start_worker(threads: int) -> tuple[ForkServerProcess, Connection]:
    """Start a worker of the pool, as the pool does it, but forked."""
    from sfao.lab.run.pool import THREAD_VARIABLES

    ours, theirs = context.Pipe()
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    told = (theirs, threads, environment, _Descriptor(ERRORS))
    process = context.Process(target=_be_a_worker, args=told, daemon=True)
    process.start()
    theirs.close()
    return process, ours


def use_server_of_parent() -> None:
    """In a process that was forked here: let the processes that it starts be forked here too."""
    forkserver._forkserver.ensure_running = lambda: None


class _Descriptor:
    """A file of this process that the one to be started gets as well."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        return _take, (DupFd(self.number),)


def _take(duplicate: object) -> int:
    return duplicate.detach()


def _be_a_worker(pipe: Connection, threads: int, environment: Mapping[str, str], errors: int) -> None:
    os.dup2(errors, ERRORS)
    os.close(errors)
    set_environment(environment)
    from sfao.lab.run.pool import work

    work(pipe, threads)


def set_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
