"""DriftBound under DDP, FSDP2 and tensor parallel: the same as in one process."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.distributed import full_tensor
from sfao.drift_bound import DriftBound
from tests.distributed.processes import run_ranks
from tests.distributed.sharded import make_model, shard, split_tensors

Batches = list[tuple[Tensor, Tensor]]
EXAMPLES = 24


def make_task(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(EXAMPLES, 12, generator=generator), torch.randint(0, 3, (EXAMPLES,), generator=generator)


def learn(model: nn.Module, rank: int, size: int, *, data_parallel: bool = True) -> DriftBound:
    """Learn two tasks on this rank's part of the examples, full batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    bound = DriftBound(model, 0.2, every=2, energy=1.0, examples=EXAMPLES).attach(optimizer)
    for task in range(2):
        x, y = make_task(task)
        part = slice(rank, None, size) if data_parallel else slice(None)
        own = [(x[part], y[part])]
        for _ in range(10):
            optimizer.zero_grad()
            cross_entropy(model(own[0][0]), own[0][1]).backward()
            optimizer.step()
        bound.consolidate(own, cross_entropy)
    bound.apply()
    return bound


def read(model: nn.Module) -> list[Tensor]:
    return [full_tensor(parameter.detach()).clone() for parameter in model.parameters()]


def learn_with_ddp(rank: int, size: int) -> tuple[list[Tensor], dict[str, float]]:
    model = make_model()
    bound = learn(nn.parallel.DistributedDataParallel(model), rank, size)
    return read(model), bound.telemetry()


def learn_sharded(rank: int, size: int, cut: Callable[[nn.Module, int], nn.Module]) -> tuple[list[Tensor], int]:
    torch.manual_seed(0)
    model = cut(make_model(), size)
    bound = learn(model, rank, size, data_parallel=cut is shard)
    return read(model), bound.tasks


def learn_alone() -> tuple[list[Tensor], dict[str, float]]:
    model = make_model()
    bound = learn(model, 0, 1)
    return read(model), bound.telemetry()


def test_ranks_learn_what_one_process_learns() -> None:
    expected, telemetry = learn_alone()
    assert telemetry["acted"] > 0
    (first, seen), (second, _) = run_ranks(2, learn_with_ddp)
    for own, other, alone in zip(first, second, expected, strict=True):
        assert torch.equal(own, other)
        torch.testing.assert_close(own, alone, rtol=1e-3, atol=1e-4)
    assert seen["acted"] == telemetry["acted"]


@pytest.mark.parametrize("cut", [shard, split_tensors])
def test_shards_learn_what_one_process_learns(cut: Callable[[nn.Module, int], nn.Module]) -> None:
    expected, _ = learn_alone()
    for found, tasks in run_ranks(2, learn_sharded, cut):
        assert tasks == 2
        for own, alone in zip(found, expected, strict=True):
            torch.testing.assert_close(own, alone, rtol=1e-3, atol=1e-4)


def fail_on_one_rank(rank: int, size: int) -> tuple[str, int]:
    model = make_model()
    bound = DriftBound(nn.parallel.DistributedDataParallel(model)).attach(torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = make_task(0)
    if rank == 1:
        x[0, 0] = float("nan")
    try:
        bound.consolidate([(x, y)], cross_entropy)
    except RuntimeError as error:
        return str(error), bound.tasks
    return "nothing", bound.tasks


def test_a_failure_on_one_rank_is_a_failure_on_all() -> None:
    for said, tasks in run_ranks(2, fail_on_one_rank):
        assert "rank 1" in said
        assert tasks == 0
