"""Real processes in a gloo group, and what they return."""

import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing


def _work(rank: int, size: int, folder: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = distributed.FileStore(f"{folder}/store", size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    try:
        outcome = work(rank, size, *arguments)
    except Exception:
        outcome = traceback.format_exc()
    Path(f"{folder}/{rank}").write_bytes(pickle.dumps(outcome))
    distributed.barrier()
    distributed.destroy_process_group()


def run_ranks(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work(rank, size, *arguments)` returns on each rank; a RuntimeError with the traceback of one that fails."""
    # Processes that fork from one which has imported torch and done nothing else: quick, and nobody's threads are lost.
    multiprocessing.get_context("forkserver").set_forkserver_preload(["torch", "sfao.optim.sfao", work.__module__])
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(_work, (size, folder, work, arguments), nprocs=size, start_method="forkserver")
        found = [pickle.loads(Path(f"{folder}/{rank}").read_bytes()) for rank in range(size)]
    failed = [outcome for outcome in found if isinstance(outcome, str) and outcome.startswith("Traceback")]
    if failed:
        raise RuntimeError(failed[0])
    return found
