"""Ranks under DDP end with one memory, and step as one process on the joint data does."""

import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sfao.gate import Gate
from sfao.optimizer import SFAO
from tests.distributed.processes import run_ranks

loss = nn.CrossEntropyLoss()
STEPS, TASKS, RANKS = 20, 3, 2


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 12), nn.Tanh(), nn.Linear(12, 4))


def shard(task, rank, size, steps=STEPS, batch=8):
    """The batches of one rank; in float64, so that sums in another order differ by less than is looked for."""
    generator = torch.Generator().manual_seed(task)
    x = torch.randn(steps, size, batch, 10, generator=generator, dtype=torch.float64)
    teacher = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    return [(part[rank], (part[rank] @ teacher).argmax(1)) for part in x]


def make(name, model, **options):
    """An optimizer, and what consolidates."""
    if name == "sfao":
        optimizer = SFAO(model, lr=0.1, **options)
        return optimizer, optimizer
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return optimizer, Gate(model, **options).attach(optimizer)


def train(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def learn_shards(rank, size, name, options, how):
    model = DistributedDataParallel(network().double())
    optimizer, gate = make(name, model, **options)
    for task in range(TASKS):
        batches = shard(task, rank, size)
        train(model, optimizer, batches)
        gate.consolidate(batches[:8], loss, **how)
    return flat(model), gate.counts


def learn_jointly(size, name, options, how):
    model = network().double()
    optimizer, gate = make(name, model, **options)
    for task in range(TASKS):
        shards = [shard(task, rank, size) for rank in range(size)]
        joint = [tuple(map(torch.cat, zip(*parts, strict=True))) for parts in zip(*shards, strict=True)]
        train(model, optimizer, joint)
        gate.consolidate([b for of_rank in shards for b in of_rank[:8]], loss, **how)
    return flat(model), gate.counts


CASES = {
    "batches": ({"accept_above": 0.3, "discard_below": -1.0, "capacity": 15}, {}),
    "factored": ({"accept_above": 0.3, "discard_below": -1.0, "storage": "factored"}, {}),
    "examples": ({"discard_below": -1.0, "capacity": 40}, {"per": "example", "limit": 128}),
    "admission": ({"discard_below": -1.0, "capacity": 9, "admit_below": 0.8}, {}),
}


@pytest.mark.parametrize("name", ["sfao", "adamw"])
@pytest.mark.parametrize("case", CASES)
def test_weights_and_decisions_are_those_of_one_process(case, name):
    options, how = CASES[case]
    ranks = run_ranks(RANKS, learn_shards, name, options, how)
    joint, counts = learn_jointly(RANKS, name, options, how)
    assert sum(of_layer["project"] for of_layer in counts.values()) > 0
    for found, of_rank in ranks:
        assert torch.equal(found, ranks[0][0])
        assert (found - joint).abs().max() <= 1e-6
        assert of_rank == counts


def learn_unevenly(rank, size, kind):
    """One rank has fewer batches, perhaps from a generator."""
    model = DistributedDataParallel(network())
    optimizer, gate = make("sfao", model, discard_below=-1.0)
    for task in range(TASKS):
        batches = [(x.float(), y) for x, y in shard(task, rank, size)]
        train(model, optimizer, batches)
        uneven = batches[: 3 + 4 * rank]
        gate.consolidate(uneven if kind == "list" else iter(uneven), loss, limit=6)
    return flat(model), gate.counts, gate.telemetry()


@pytest.mark.parametrize("kind", ["list", "iterator"])
def test_uneven_batches(kind):
    first, second = run_ranks(RANKS, learn_unevenly, kind)
    assert torch.equal(first[0], second[0])
    assert first[1:] == second[1:]
    assert first[2]["project"] > 0


def consolidate_badly(rank, size, fault):
    model = DistributedDataParallel(network())
    optimizer = SFAO(model, lr=0.1)
    batches = [(x.float(), y) for x, y in shard(0, rank, size, 5)]
    optimizer.consolidate(batches, loss)
    before = optimizer.gate.state_dict()["checksum"]
    try:
        optimizer.consolidate(FAULTS[fault][0](rank, batches, optimizer, model), loss)
    except Exception as error:
        for group in optimizer.param_groups:
            group["samples"] = 10
        return f"{type(error).__name__}: {error}", fault == "weights" or optimizer.gate.state_dict()[
            "checksum"
        ] == before
    return "nothing was raised"


def break_off(rank, batches):
    yield from batches[:2]
    if rank == 1:
        raise OSError("the disk is gone")
    yield from batches[2:]


def change_options(rank, optimizer):
    for group in optimizer.param_groups:
        group["samples"] = 10 + rank


def change_weights(rank, model):
    with torch.no_grad():
        model.module[0].weight.add_(rank)


FAULTS = {
    "nan": (
        lambda r, b, o, m: [(x * float("nan"), y) for x, y in b] if r == 1 else b,
        "the loss of a past task must be finite, got nan",
    ),
    "loader": (lambda r, b, o, m: break_off(r, b), "rank 1: OSError: the disk is gone"),
    "triples": (lambda r, b, o, m: [(*p, p[1]) for p in b] if r == 1 else b, "ValueError: `batches` must"),
    "options": (lambda r, b, o, m: change_options(r, o) or b, "the options must be the same on all ranks, .* rank 1"),
    "weights": (lambda r, b, o, m: change_weights(r, m) or b, "the weights must be the same on all ranks, .* rank 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_on_one_rank_is_one_on_all(fault):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = run_ranks(RANKS, consolidate_badly, fault)
    assert first == second
    message, is_unchanged = first
    assert re.search(FAULTS[fault][1], message), message
    assert message.startswith("RankFailure: consolidate() failed, and no rank has stored anything")
    assert "\n" not in message
    assert is_unchanged


def learn_alone(rank, size):
    torch.manual_seed(rank)
    optimizer = SFAO(nn.Linear(10, 4), lr=0.1, sync=False)
    for task in range(rank + 1):
        optimizer.consolidate([(x.float(), y) for x, y in shard(task, rank, size, 5)], loss)
    return optimizer.gate.tasks


def test_without_sync_every_rank_is_alone():
    assert run_ranks(RANKS, learn_alone) == [1, 2]


def draw_shares(rank, size, per, limit):
    """Return the labels of the directions that a rank stored of inputs that name their rank."""
    model = nn.Linear(2, 1, bias=False)
    optimizer = SFAO(model, lr=0.1)
    inputs = torch.eye(2)[rank].expand(30, 2)
    batches = [(part, torch.zeros(len(part), 1)) for part in inputs.split(3)]
    optimizer.consolidate(batches, nn.functional.mse_loss, per=per, limit=limit)
    return optimizer.gate.layers[0].memory.parts[0].held[0].abs().round().argmax(1).tolist()


@pytest.mark.parametrize(("per", "limit"), [("example", 8), ("batch", 6)])
@pytest.mark.filterwarnings("ignore:the directions of these layers span:RuntimeWarning")
def test_every_rank_draws_an_equal_share(per, limit):
    first, second = run_ranks(RANKS, draw_shares, per, limit)
    assert first == second == [0] * (limit // 2) + [1] * (limit // 2)
