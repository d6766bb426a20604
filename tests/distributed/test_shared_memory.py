"""Ranks whose weights differ by rounding hold the memory of the first, and go on as one process on the joint data."""

import pytest
import torch

import sfao
from sfao.optim._agreement import digest_memories
from tests.distributed.processes import run_ranks
from tests.distributed.test_ddp import CASES, flat, loss, network, shard, train

TASKS, STEPS, LOOKED_AT = 2, 20, 8
#: Far less than what is refused, and enough to change the bits of every direction and axis.
ROUNDING = 1e-7

KINDS = {
    **CASES,
    "both": ({"memory": "both", "capacity": 15}, {}),  # all of it: a part is drawn of the shards otherwise than of one
    "factored": ({"memory": "directions", "storage": "factored", "capacity": 15}, {}),
}


def make_model(rank):
    model = network().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + rank * ROUNDING)
    return model


def join(task, size):
    """The batches that all ranks consolidate, in the order in which they are joined."""
    return [batch for rank in range(size) for batch in shard(task, rank, size, STEPS)[:LOOKED_AT]]


def remember(rank, size, kind):
    """Consolidate and train, two tasks, every rank on all data: weights stay as far apart as they were."""
    options, how = KINDS[kind]
    model, alone = make_model(rank), make_model(rank)
    optimizer = sfao.SFAO(sfao.layer_groups(model), lr=0.1, **options)
    lonely = sfao.SFAO(sfao.layer_groups(alone), lr=0.1, sync=False, **options)
    digests = []
    for task in range(TASKS):
        joint = join(task, size)
        for one, gate, batches in (
            (model, optimizer, shard(task, rank, size, STEPS)[:LOOKED_AT]),
            (alone, lonely, joint),
        ):
            train(one, gate, joint)
            gate.consolidate(one, batches, loss, **how)
        digests.append((digest_memories(optimizer.gate.layers), digest_memories(lonely.gate.layers)))
    train(model, optimizer, join(TASKS, size))
    train(alone, lonely, join(TASKS, size))
    return digests, flat(model), flat(alone), optimizer.counts, optimizer.memory_bytes, lonely.memory_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_differ_by_rounding_hold_the_memory_of_the_first(kind):
    first, second = run_ranks(2, remember, kind)
    for (of_first, alone_first), (of_second, alone_second) in zip(first[0], second[0], strict=True):
        assert of_first == of_second
        assert of_first == alone_first
        assert of_first != alone_second  # which is what the second would have held of its own
    assert torch.equal(first[1], first[2])
    assert (second[1] - first[1]).abs().max() <= 100 * ROUNDING
    assert first[3] == second[3]
    assert sum(of_layer["project"] for of_layer in first[3].values()) > 0
    assert first[4] == second[4] == first[5]
