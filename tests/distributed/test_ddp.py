"""Ranks under DDP end with one memory, and step as one process on the joint data does."""

import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sfao
from sfao.optim._agreement import EVERY
from sfao.optim._consolidation.joint import gather_examples
from sfao.optim._ranks import Ranks
from tests.distributed.processes import run_ranks

loss = nn.CrossEntropyLoss()
STEPS = 60
TASKS = 3
#: Batches of a rank that are consolidated, by the number of ranks.
LOOKED_AT = {2: 8, 4: 4}

OPTIMIZERS = {
    "sfao": lambda m, **o: sfao.SFAO(sfao.layer_groups(m), lr=0.1, momentum=0.9, **o),
    "momentum": lambda m, **o: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "adamw": lambda m, **o: torch.optim.AdamW(m.parameters(), lr=0.01),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 12), nn.Tanh(), nn.Linear(12, 4))


def shard(task, rank, size, steps=STEPS // TASKS, batch=8):
    """The batches of one rank; in float64, so that sums in another order differ by less than is looked for."""
    generator = torch.Generator().manual_seed(task)
    x = torch.randn(steps, size, batch, 10, generator=generator, dtype=torch.float64)
    teacher = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    return [(part[rank], (part[rank] @ teacher).argmax(1)) for part in x]


def make(name, model, **options):
    """An optimizer, and what consolidates."""
    bare = getattr(model, "module", model)
    optimizer = OPTIMIZERS[name](bare, **options)
    return optimizer, optimizer if name == "sfao" else sfao.Gate(sfao.layer_groups(model), **options).attach(optimizer)


def train(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def learn_shards(rank, size, name, options, how, wrap):
    model = DistributedDataParallel(network().double(), **wrap)
    optimizer, gate = make(name, model, **options)
    for task in range(TASKS):
        batches = shard(task, rank, size)
        train(model, optimizer, batches)
        gate.consolidate(model, batches[: LOOKED_AT[size]], loss, **how)
    return flat(model), gate.counts, gate.telemetry()


def learn_jointly(size, name, options, how):
    model = network().double()
    optimizer, gate = make(name, model, **options)
    for task in range(TASKS):
        shards = [shard(task, rank, size) for rank in range(size)]
        joint = [tuple(map(torch.cat, zip(*parts, strict=True))) for parts in zip(*shards, strict=True)]
        train(model, optimizer, joint)
        gate.consolidate(model, [b for of_rank in shards for b in of_rank[: LOOKED_AT[size]]], loss, **how)
    return flat(model), gate.counts


CASES = {
    "subspace": ({"memory": "subspace"}, {}),
    "directions": ({"memory": "directions", "accept_above": 0.3, "discard_below": -1.0, "capacity": 15}, {}),
    "examples": ({"memory": "directions", "discard_below": -1.0, "capacity": 40}, {"per": "example", "limit": 128}),
    "both": ({"memory": "both", "capacity": 15}, {"limit": 10}),
}


@pytest.mark.parametrize(
    ("size", "case", "name"),
    [
        *((2, case, name) for case in ("subspace", "directions", "examples") for name in OPTIMIZERS),
        (4, "subspace", "sfao"),
        *(pytest.param(4, "subspace", name, marks=pytest.mark.soak) for name in OPTIMIZERS if name != "sfao"),
    ],
)
def test_weights_and_decisions_are_those_of_one_process(size, case, name):
    options, how = CASES[case]
    ranks = run_ranks(size, learn_shards, name, options, how, {})
    joint, counts = learn_jointly(size, name, options, how)
    assert sum(of_layer["project"] for of_layer in counts.values()) > 0
    for found, of_rank, _ in ranks:
        assert torch.equal(found, ranks[0][0])
        assert (found - joint).abs().max() <= 1e-6
        assert of_rank == counts


@pytest.mark.parametrize("case", ["both", "subspace"])
@pytest.mark.parametrize("wrap", [{"static_graph": True}, {"gradient_as_bucket_view": True}], ids=str)
def test_ranks_stay_together_with_other_settings_of_ddp(case, wrap):
    options, how = CASES[case]
    ranks = run_ranks(2, learn_shards, "sfao", options, how, wrap)
    assert torch.equal(ranks[0][0], ranks[1][0])
    assert ranks[0][1:] == ranks[1][1:]


def learn_unevenly(rank, size, kind):
    """One rank has fewer batches; gradients are accumulated and compressed on the way."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = DistributedDataParallel(network())
    model.register_comm_hook(None, fp16_compress_hook)
    optimizer, gate = make("sfao", model, memory="both")
    for task in range(TASKS):
        batches = [(x.float(), y) for x, y in shard(task, rank, size)]
        for first, second in zip(batches[::2], batches[1::2], strict=True):
            optimizer.zero_grad()
            with model.no_sync():
                loss(model(first[0]), first[1]).backward()
            loss(model(second[0]), second[1]).backward()
            optimizer.step()
        uneven = batches[: 3 + 4 * rank]
        gate.consolidate(model, uneven if kind == "list" else iter(uneven), loss, limit=40)
    return flat(model), gate.counts, gate.telemetry()


@pytest.mark.parametrize("kind", ["list", "iterator"])
def test_uneven_shards_accumulation_and_compression(kind):
    ranks = run_ranks(2, learn_unevenly, kind)
    assert torch.equal(ranks[0][0], ranks[1][0])
    assert ranks[0][1:] == ranks[1][1:]
    assert ranks[0][2]["project"] > 0


def consolidate_badly(rank, size, memory, fault):
    model = DistributedDataParallel(network())
    optimizer = sfao.SFAO(sfao.layer_groups(model), lr=0.1, memory=memory)
    batches = [(x.float(), y) for x, y in shard(0, rank, size, 5)]
    optimizer.consolidate(model, batches, loss)
    before = optimizer.memory_bytes
    try:
        optimizer.consolidate(model, FAULTS[fault][0](rank, batches, optimizer, model), loss)
    except Exception as error:
        return f"{type(error).__name__}: {error}", optimizer.memory_bytes == before, optimizer.gate.task
    return "nothing was raised"


def spoil(rank, batches):
    return [(x * float("nan"), y) for x, y in batches] if rank == 1 else batches


def break_off(rank, batches):
    yield from batches[:2]
    if rank == 1:
        raise OSError("the disk is gone")
    yield from batches[2:]


def change_options(rank, optimizer):
    for group in optimizer.param_groups:
        group["axes"] = 10 + rank


def change_weights(rank, model):
    with torch.no_grad():
        model.module[0].weight.add_(rank)


FAULTS = {
    "nan": (lambda r, b, o, m: spoil(r, b), "rank.* 1 were not"),
    "loader": (lambda r, b, o, m: break_off(r, b), "rank 1: OSError: the disk is gone"),
    "nothing": (lambda r, b, o, m: 3 if r == 1 else b, "the arguments of consolidate.* are others on rank 1"),
    "triples": (
        lambda r, b, o, m: [(*p, p[1]) for p in b] if r == 1 else b,
        "rank 1: ValueError: `batches` must",
    ),
    "options": (lambda r, b, o, m: change_options(r, o) or b, "the options must be the same on all ranks, .* rank 1"),
    "weights": (lambda r, b, o, m: change_weights(r, m) or b, "the weights must be the same on all ranks, .* rank 1"),
}


@pytest.mark.parametrize("memory", ["subspace", "directions"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_on_one_rank_is_one_on_all(memory, fault):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranks = run_ranks(2, consolidate_badly, memory, fault)
    assert ranks[0] == ranks[1], ranks
    message, is_unchanged, task = ranks[0]
    assert re.search(FAULTS[fault][1], message), message
    assert message.startswith("RankFailure: consolidate() failed, and no rank has stored anything")
    assert "\n" not in message
    assert is_unchanged
    assert task == 1


def drift_apart(rank, size):
    model = network()
    optimizer = sfao.SFAO(sfao.layer_groups(model), lr=0.1)
    batches = [(x.float(), y) for x, y in shard(0, rank, size, 5)]
    optimizer.consolidate(model, batches, loss)
    for step in range(EVERY):
        optimizer.zero_grad()
        x, y = batches[step % 5]
        if rank == 0 or step % 2:
            loss(model(x), y).backward()  # not under DDP: every rank goes its own way
        try:
            optimizer.step()
        except RuntimeError as error:
            return step, str(error)
    return "nothing was raised"


def test_ranks_that_decide_otherwise_are_named():
    ranks = run_ranks(2, drift_apart)
    assert ranks[0] == ranks[1]
    step, message = ranks[0]
    assert step == EVERY - 1
    assert "rank 1 decided otherwise than rank 0" in message


def learn_alone(rank, size):
    """Models of their own, one after the other."""
    torch.manual_seed(rank)
    model = nn.Linear(10, 4)
    optimizer = sfao.SFAO(sfao.layer_groups(model), lr=0.1, sync=False)
    for task in range(rank + 1):
        optimizer.consolidate(model, [(x.float(), y) for x, y in shard(task, rank, size, 5)])
    return optimizer.gate.task


def test_without_sync_every_rank_is_alone():
    assert run_ranks(2, learn_alone) == [1, 2]


def draw_jointly(rank, size, limit):
    batches = [(torch.full((8, 1), float(rank)), torch.arange(8)) for _ in range(5 + 10 * rank)]
    drawn = gather_examples(Ranks(None), batches, limit, torch.Generator())
    return [(int(x), int(y)) for x, y in drawn]


def test_a_draw_is_of_all_shards_by_their_size():
    first, second = run_ranks(2, draw_jointly, 80)
    assert first == second
    assert len(first) == 80
    assert 10 <= sum(rank == 0 for rank, _ in first) <= 30  # 20 of 80 are expected: a quarter of all examples
    everything, _ = run_ranks(2, draw_jointly, 160)
    assert everything == [(0, n % 8) for n in range(40)] + [(1, n % 8) for n in range(120)]
