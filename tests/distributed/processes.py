"""Real processes in a gloo group, and what they return; a group serves many calls."""

import os
import tempfile
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import distributed

from tests.fork_server import context

#: Seconds that a call may take; collectives give up before.
PATIENCE = 300


class Failed(str):
    """The traceback of a rank."""


def _serve(rank: int, size: int, folder: str, pipe: Connection) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = distributed.FileStore(f"{folder}/store", size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    while True:
        try:
            work, arguments = pipe.recv()
        except EOFError:  # the tests are over
            os._exit(0)
        pipe.send(_call(work, rank, size, arguments))
        distributed.barrier()


def _call(work: Callable[..., Any], rank: int, size: int, arguments: tuple[Any, ...]) -> Any:
    """What `work` returns in a process as good as new, or how it failed."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float32)
    try:
        with warnings.catch_warnings():
            return work(rank, size, *arguments)
    except Exception:
        return Failed(traceback.format_exc())


class Group:
    """So many ranks, which do one piece of work after the other."""

    def __init__(self, size: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, self._folder.name, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def call(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((work, arguments))
        return [self._hear(rank) for rank in range(len(self._pipes))]

    def _hear(self, rank: int) -> Any:
        try:
            return self._pipes[rank].recv() if self._pipes[rank].poll(PATIENCE) else Failed(f"rank {rank} never ended")
        except (EOFError, OSError):
            return Failed(f"rank {rank} died")

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._folder.cleanup()


_groups: dict[int, Group] = {}


def run_ranks(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work(rank, size, *arguments)` returns on each rank; a RuntimeError with the traceback of one that fails.

    The ranks are those of the calls before, unless one of them has failed.
    """
    if size not in _groups:
        _groups[size] = Group(size)
    found = _groups[size].call(work, *arguments)
    failed = [outcome for outcome in found if isinstance(outcome, Failed)]
    if failed:
        _groups.pop(size).end()
        raise RuntimeError(failed[0])
    return found


def end_groups() -> None:
    """End the ranks of all calls before."""
    while _groups:
        _groups.popitem()[1].end()
