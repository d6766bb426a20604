"""Four tasks on several ranks with fully_shard. Run the same command again to resume from the last checkpoint.

torchrun --nproc-per-node 2 examples/fsdp_tasks.py FOLDER [forgetting]
"""

import os
import shutil
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

import sfao
from sfao.integrations.dcp import Checkpoint

TASKS, STEPS, EVERY = 4, 40, 15


def make_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    for layer in (model[0], model[2], model[4], model):
        fully_shard(layer, mesh=mesh)
    return model


def make_task(number):
    """Ten Gaussian clusters in 40-D; each task has new centres."""
    generator = torch.Generator().manual_seed(number)
    centres, kinds = torch.randn(10, 40, generator=generator), torch.randint(0, 10, (1000,), generator=generator)
    return centres[kinds] + torch.randn(1000, 40, generator=generator), kinds


def draw(task, step, size=50):
    """A batch of the task's points: every rank has its own share of it."""
    points, kinds = task
    chosen = torch.randperm(len(points), generator=torch.Generator().manual_seed(step))[:size]
    own = chosen.chunk(distributed.get_world_size())[distributed.get_rank()]
    return points[own], kinds[own]


class Progress:
    """How far the training has come, for the checkpoint."""

    def __init__(self):
        self.step = 0

    def state_dict(self):
        return {"step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        self.step = int(state["step"])


def save(folder, model, optimizer, progress):
    """Save beside the last checkpoint; it becomes the last one by its name, when all of it is there."""
    part, place = folder / "part", folder / f"step-{progress.step:06}"
    if distributed.get_rank() == 0:
        shutil.rmtree(part, ignore_errors=True)
    distributed.barrier()
    checkpoint.save({"model": model, "optimizer": Checkpoint(optimizer), "progress": progress}, checkpoint_id=part)
    if distributed.get_rank() == 0:
        os.replace(part, place)
        for old in sorted(folder.glob("step-*"))[:-2]:
            shutil.rmtree(old)
    distributed.barrier()


def load(folder, model, optimizer, progress):
    last = max(folder.glob("step-*"), default=None)
    if last is not None:
        saved = {"model": model, "optimizer": Checkpoint(optimizer, last), "progress": progress}
        checkpoint.load(saved, checkpoint_id=last)


def learn(folder, remembers=True):
    """Learn four tasks, one after the other, from wherever the folder says; return the model and the bound."""
    folder.mkdir(parents=True, exist_ok=True)
    model, progress = make_model(), Progress()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    bound = sfao.DriftBound(model, tolerance=0.3).attach(optimizer)
    load(folder, model, optimizer, progress)
    while progress.step < TASKS * STEPS:
        number, step = divmod(progress.step, STEPS)
        task = make_task(number)
        optimizer.zero_grad()
        points, kinds = draw(task, step)
        cross_entropy(model(points), kinds).backward()
        optimizer.step()
        progress.step += 1
        if step == STEPS - 1 and remembers:  # all ranks call it, each with its own batches
            bound.consolidate([draw(task, 1000 + batch) for batch in range(12)], cross_entropy)
        if progress.step % EVERY == 0:
            save(folder, model, optimizer, progress)
    return model, bound


@torch.no_grad()
def measure(model):
    """Return the accuracy on all tasks."""
    right = [(model(points).argmax(1) == kinds).float().mean() for points, kinds in map(make_task, range(TASKS))]
    return float(torch.stack(right).mean())


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model, bound = learn(Path(sys.argv[1]), remembers="forgetting" not in sys.argv)
    accuracy = measure(model)
    if distributed.get_rank() == 0:
        print(f"accuracy on all {TASKS} tasks {accuracy:.2f}, {bound.memory_bytes / 1e3:.0f} kB held by this rank")
    distributed.destroy_process_group()
