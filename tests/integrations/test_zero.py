"""ZeroRedundancyOptimizer, in two processes: gated as the optimizer that it shards."""

from copy import deepcopy
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import sfao
from tests.integrations.tasks import make_network, make_tasks, measure_gap, measure_memory_gap, train

RANKS = 2


def learn(make_optimizer, tasks):
    model = DistributedDataParallel(make_network())
    optimizer = make_optimizer(model.parameters())
    gate = sfao.Gate(model).attach(optimizer)
    for task in tasks:
        train(model, optimizer, task)
        gate.consolidate(task, cross_entropy)
    return model, optimizer, gate


def make_sharded(parameters):
    return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=0.02)


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    tasks = make_tasks()
    sharded, optimizer, gate = learn(make_sharded, tasks)
    whole, _, other = learn(lambda parameters: torch.optim.AdamW(parameters, lr=0.02), tasks)
    found = {
        "gap": measure_gap(sharded, whole),
        "memory_gap": measure_memory_gap(gate.state_dict(), other.state_dict()),
        "projected": sum(counts["project"] for counts in gate.counts.values()),
    }

    # The state of all shards comes together on one rank, which gives it to the others.
    optimizer.consolidate_state_dict(to=0)
    states = [deepcopy(optimizer.state_dict()) if rank == 0 else None]
    dist.broadcast_object_list(states, src=0)
    model = DistributedDataParallel(make_network())
    resumed = make_sharded(model.parameters())
    fresh = sfao.Gate(model).attach(resumed)
    model.load_state_dict(sharded.state_dict())
    resumed.load_state_dict(states[0])
    train(sharded, optimizer, tasks[0])
    train(model, resumed, tasks[0])
    found["task"] = fresh.tasks
    found["resumed_gap"] = measure_gap(sharded, model)
    torch.save(found, f"{folder}/found{rank}.pt")
    dist.destroy_process_group()


def test_it_is_gated_as_the_optimizer_that_it_shards_and_resumes(tmp_path: Path):
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=RANKS)
    for rank in range(RANKS):
        found = torch.load(tmp_path / f"found{rank}.pt", weights_only=True)
        assert found["projected"] > 0
        assert (found["gap"], found["memory_gap"]) == (0.0, 0.0)
        assert (found["task"], found["resumed_gap"]) == (3, 0.0)
