"""A rank that is killed: the others end with an error within a minute, and all go on from the last checkpoint."""

import importlib.util
import os
import pickle
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.distributed.checkpoint import FileSystemWriter

from sfao.optim._consolidation import spaces
from sfao.optim._sharding.shards import Shards
from tests.distributed.sharded import read_whole
from tests.fork_server import context

EXAMPLE = Path(__file__).parents[2] / "examples" / "fsdp_tasks.py"
RANKS = 2
#: The longest that survivors may take, in seconds.
PATIENCE = 60


def load_example():
    spec = importlib.util.spec_from_file_location("fsdp_tasks", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.TASKS, example.STEPS, example.EVERY = 3, 4, 3
    return example


def kill_self_at(holder, name: str, count: int) -> None:
    """Let this process end, as by the kernel's hand, in the `count`-th call of a function."""
    real, calls = getattr(holder, name), []

    def called(*arguments, **others):
        calls.append(None)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **others)

    setattr(holder, name, called)


#: Where a rank is killed: in the sums of a step, while a task is stored, while a checkpoint is saved.
POINTS = {
    "step": (Shards, "total", 6),
    "consolidate": (spaces, "gather_inputs", 2),
    "checkpoint": (FileSystemWriter, "write_data", 2),
}


def work(rank, folder, meeting, point):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = distributed.FileStore(meeting, RANKS)
    timeout = timedelta(seconds=PATIENCE)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timeout)
    if point is not None and rank == 1:
        kill_self_at(*POINTS[point])
    try:
        model, optimizer = load_example().learn(Path(folder))
        outcome = ("done", [tensor.numpy() for tensor in read_whole(model)], optimizer.counts)
    except Exception as error:
        outcome = (type(error).__name__, str(error), time.time())
    Path(f"{folder}.{rank}").write_bytes(pickle.dumps(outcome))
    os._exit(0)  # a group that has lost a member need not be left in order


def start(folder: Path, point=None):
    """Run all ranks; return the outcomes of those that told one, and how long they took."""
    meeting = str(folder) + f".meeting.{time.monotonic_ns()}"
    processes = [context.Process(target=work, args=(rank, str(folder), meeting, point)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    processes[1].join(300)
    ended = time.monotonic()
    processes[0].join(PATIENCE + 30)
    took = time.monotonic() - ended
    for process in processes:
        process.kill()
    outcomes = {}
    for rank in range(RANKS):
        told = Path(f"{folder}.{rank}")
        if told.exists():
            outcomes[rank] = pickle.loads(told.read_bytes())
            told.unlink()
    return outcomes, took


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    outcomes, _ = start(tmp_path_factory.mktemp("whole") / "run")
    assert outcomes[0][0] == "done", outcomes
    return outcomes[0]


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_rank_ends_the_job_and_all_go_on_from_the_last_checkpoint(tmp_path, whole, point):
    folder = tmp_path / "run"
    outcomes, took = start(folder, point)
    assert 1 not in outcomes
    kind, message, _ = outcomes[0]
    assert took < PATIENCE
    if point == "checkpoint":  # torch's own, which says so in its words
        assert kind != "done"
    else:
        assert kind == "LostRank"
        assert "Start all ranks again from the last checkpoint" in message
    assert list(folder.glob("step-*")), "nothing was saved before the rank was killed"
    outcomes, _ = start(folder)
    assert outcomes[0][0] == outcomes[1][0] == "done", outcomes
    assert all((a == b).all() for a, b in zip(outcomes[0][1], whole[1], strict=True))
    assert outcomes[0][2] == whole[2]
