"""The cost of SFAO under DDP or fully_shard: two gloo ranks on one machine, each with one thread, beside SGD.

    python benchmarks/parallel_cost.py [--by DDP|FSDP] [--models mlp,cnn] [--batch 32] [--rounds 15] [--steps 40]

The models of the laboratory (mlp has 256 hidden units), `--batch` digits per rank and step, the default memory after
two consolidated tasks. Blocks of steps of four loops take turns, on both ranks at once, so that the cores are as busy
for each: SGD and SFAO under DDP (or FSDP), and the same two without, every rank for itself. Time is the clock's, and
the processor's in brackets, which what others compute meanwhile does not change; a ratio is the median of those of all
rounds. Collectives are those of the process group that torch's profiler sees.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import sfao
from sfao.data.dataset import load_dataset
from sfao.models import build_model

RANKS, TASKS = 2, 2
LOOPS = ("SGD", "SFAO")
#: Steps that are profiled: one look at whether ranks decide alike is among them.
PROFILED = 100

Batch = tuple[Tensor, Tensor]
Loop = Callable[[int], None]


class Times(NamedTuple):
    """Milliseconds per step, by the clock and of this rank's processor."""

    clock: float
    processor: float


def read_batches(rank: int, size: int) -> list[Batch]:
    """Return the batches of a rank: every other one of the embedded digits."""
    dataset = load_dataset("mnist-5k")
    images, labels = dataset.train_images.flatten(1).float() / 255, dataset.train_labels
    batches = list(zip(images.split(size), labels.split(size), strict=True))[: len(images) // size]
    return batches[rank::RANKS]


def shard(model: nn.Module) -> nn.Module:
    """Cut a model among all ranks, every layer of its own."""
    mesh = init_device_mesh("cpu", (RANKS,))
    for module in model.modules():
        if module is not model and list(module.parameters(recurse=False)):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def wrap(model: nn.Module, by: str) -> nn.Module:
    return {"DDP": DistributedDataParallel, "FSDP": shard}[by](model)


def make_loop(name: str, by: str | None, model_name: str, batches: Sequence[Batch]) -> Loop:
    """Return what makes so many steps of one of the loops, which remembers two tasks already if it is SFAO."""
    bare = build_model(model_name, (1, 28, 28), 10, seed=0)
    batches = [(x if model_name == "mlp" else x.view(-1, 1, 28, 28), y) for x, y in batches]
    model = bare if by is None else wrap(bare, by)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if name == "SFAO":
        gated = sfao.SFAO(sfao.layer_groups(model), lr=0.01, sync=by is not None)
        share = len(batches) // TASKS
        for task in range(TASKS):
            gated.consolidate(model, batches[task * share : (task + 1) * share], cross_entropy)
        print(f"{model_name} {by or 'alone'}: a rank holds {gated.memory_bytes} bytes", flush=True)
        optimizer = gated

    def make_steps(steps: int) -> None:
        for step in range(steps):
            x, y = batches[step % len(batches)]
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()

    return make_steps


def time_block(loop: Loop, steps: int) -> Times:
    """Return milliseconds per step of a block that the ranks begin together, until the last of them is done."""
    distributed.barrier()
    start, busy = time.perf_counter(), time.process_time()
    loop(steps)
    busy = time.process_time() - busy
    distributed.barrier()
    return Times(1e3 * (time.perf_counter() - start) / steps, 1e3 * busy / steps)


def count_collectives(loop: Loop) -> float:
    """Return how many collectives the process group does per step."""
    distributed.barrier()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        loop(PROFILED)
    return sum(event.count for event in seen.key_averages() if event.key.startswith("gloo:")) / PROFILED


def measure(rank: int, folder: str, by: str, model: str, batch: int, rounds: int, steps: int) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = distributed.FileStore(f"{folder}/store", RANKS)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    batches = read_batches(rank, batch)
    loops = {f"{by}-{name}": make_loop(name, by, model, batches) for name in LOOPS}
    loops |= {name: make_loop(name, None, model, batches) for name in LOOPS}
    for loop in loops.values():
        loop(steps)
    times = [{name: time_block(loop, steps) for name, loop in loops.items()} for _ in range(rounds)]
    collectives = {name: count_collectives(loops[name]) for name in loops if name.startswith(by)}
    if rank == 0:
        show(by, model, times, collectives)
    distributed.destroy_process_group()


def show(by: str, model: str, times: Sequence[dict[str, Times]], collectives: dict[str, float]) -> None:
    for name in times[0]:
        clock, processor = (statistics.median(column) for column in zip(*(each[name] for each in times), strict=True))
        of_step = f", {collectives[name]:.2f} collectives a step" if name in collectives else ""
        print(f"{model:4} {name:10} {clock:7.3f} ms a step ({processor:.3f}){of_step}")
    for ours, theirs in ((f"{by}-SFAO", f"{by}-SGD"), ("SFAO", "SGD")):
        clock, processor = ([each[ours][kind] / each[theirs][kind] for each in times] for kind in (0, 1))
        low, middle, high = statistics.quantiles(clock, n=4)
        of_processor = statistics.median(processor)
        print(
            f"{model:4} {ours} over {theirs}: {middle:.2f}x, quartiles {low:.2f} and {high:.2f} ({of_processor:.2f}x)"
        )
    for ours, theirs in ((f"{by}-SFAO", f"{by}-SGD"), ("SFAO", "SGD")):
        clock, processor = (
            statistics.median(each[ours][kind] - each[theirs][kind] for each in times) for kind in (0, 1)
        )
        print(f"{model:4} {ours} less {theirs}: {clock:.3f} ms a step ({processor:.3f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", default="DDP", choices=("DDP", "FSDP"), help="how ranks share a model (default DDP)")
    parser.add_argument("--models", default="mlp,cnn", help="models of the laboratory (default mlp,cnn)")
    parser.add_argument("--batch", type=int, default=32, help="examples per rank and step (default 32)")
    parser.add_argument("--rounds", type=int, default=15, help="how often each loop is timed (default 15)")
    parser.add_argument("--steps", type=int, default=40, help="steps of a block (default 40)")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {RANKS} gloo ranks, one thread each, {arguments.batch} examples per rank")
    for model in arguments.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.start_processes(
                measure,
                (folder, arguments.by, model, arguments.batch, arguments.rounds, arguments.steps),
                nprocs=RANKS,
                start_method="spawn",
            )


if __name__ == "__main__":
    main()
