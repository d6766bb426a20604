"""FSDP2 and tensor parallel, in real processes: the gate does what it does in one, and each rank holds its share."""

import pytest

from tests.distributed.processes import run_ranks
from tests.distributed.sharded import (
    OPTIMIZERS,
    Training,
    count_collectives,
    make_convolutions,
    make_model,
    measure_gap,
    read_whole,
    shard,
    shard_lazily,
    split_tensors,
    use_sfao,
)

MODELS = {"linear": make_model, "convolutions": make_convolutions}
#: Two collectives a step, whatever the number of layers.
FSDP_COLLECTIVES = 2


def compare(rank, size, cut, model, optimizer, options, how):
    """Train in shards and, on the first rank, in one process; tell how far they are from each other."""
    import warnings

    warnings.simplefilter("ignore", RuntimeWarning)
    own, shares = (0, 1) if cut == "tensors" else (rank, size)
    sharded = {"fsdp": shard, "lazy": shard_lazily, "tensors": split_tensors}[cut](MODELS[model](), size)
    training = Training(sharded, OPTIMIZERS[optimizer](**options), own, shares).run(**how)
    whole = read_whole(sharded)
    found = {"bytes": training.gate.memory_bytes, "counts": training.gate.counts}
    if rank == 0:
        alone = Training(MODELS[model](), OPTIMIZERS[optimizer](sync=False, **options)).run(**how)
        found["gap"] = measure_gap(whole, read_whole(alone.model))
        found["same"] = training.decisions == alone.decisions and training.gate.counts == alone.gate.counts
        found["decided"] = {decision for step in alone.decisions for decision in step.values()}
        found["all_bytes"] = alone.gate.memory_bytes
    return found


CASES = [
    ("linear", "sfao", {}, {}),
    ("linear", "sfao", {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True}, {}),
    ("linear", "sfao", {"keep": 0.0}, {}),
    ("linear", "sfao", {"granularity": "global"}, {}),
    ("linear", "sfao", {"memory": "directions", "capacity": 5}, {}),
    ("linear", "sfao", {"memory": "directions", "accept_above": 1.0, "discard_below": -1.0}, {"target": "logit"}),
    ("linear", "sfao", {"storage": "factored", "rank": 2, "memory_dtype": "bfloat16"}, {}),
    ("linear", "sfao", {"memory": "both"}, {}),
    ("linear", "adamw", {}, {}),
    ("linear", "adamw", {"memory": "directions"}, {"per": "example"}),
    ("convolutions", "sfao", {}, {}),
    ("convolutions", "adamw", {"memory": "both"}, {}),
]


@pytest.mark.parametrize(("model", "optimizer", "options", "how"), CASES, ids=str)
def test_two_ranks_with_fully_shard_do_what_one_process_does(model, optimizer, options, how):
    found = run_ranks(2, compare, "fsdp", model, optimizer, options, how)
    assert found[0]["same"]
    assert found[0]["gap"] <= 1e-6
    assert found[0]["decided"] > {"accept"}
    assert sum(rank["bytes"] for rank in found) <= found[0]["all_bytes"] * 1.1
    assert found[0]["counts"] == found[1]["counts"]


@pytest.mark.parametrize("options", [{}, {"memory": "directions"}], ids=str)
def test_four_ranks_of_which_some_hold_nothing_of_a_layer(options):
    found = run_ranks(4, compare, "fsdp", "linear", "sfao", options, {})
    assert found[0]["same"]
    assert found[0]["gap"] <= 1e-6


@pytest.mark.parametrize("options", [{}, {"memory": "directions"}, {"memory": "both"}], ids=str)
def test_models_that_stay_whole_after_a_forward_pass_do_what_one_process_does(options):
    found = run_ranks(2, compare, "lazy", "linear", "sfao", options, {})
    assert found[0]["same"]
    assert found[0]["gap"] <= 1e-6


def keep_gradients(rank, size):
    """Gradients that are there, or not, when a task is stored; the model has just been evaluated."""
    import torch

    model = shard_lazily(make_model(), size)
    model(torch.zeros(2, 12))  # whole from here on
    training = Training(model, use_sfao(memory="directions"), rank, size)
    training.train(0, 2)
    before = [parameter.grad.full_tensor() for parameter in model.parameters()]
    model(torch.zeros(2, 12))
    training.consolidate(0)
    after = [parameter.grad.full_tensor() for parameter in model.parameters()]
    return measure_gap(before, after), training.gate.shards is not None


def test_storing_leaves_gradients_as_they_are_in_a_model_that_was_just_evaluated():
    assert run_ranks(2, keep_gradients) == [(0.0, True)] * 2


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("options", [{}, {"memory": "directions"}, {"memory": "both"}], ids=str)
def test_tensor_parallel_does_what_one_process_does(optimizer, options):
    found = run_ranks(2, compare, "tensors", "linear", optimizer, options, {})
    assert found[0]["same"]
    assert found[0]["gap"] <= 1e-6


def count_steps(rank, size, layers):
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = shard(nn.Sequential(*[nn.Linear(12, 12) for _ in range(layers)], nn.Linear(12, 3)), size)
    training, counted = Training(model, use_sfao(), rank, size).run(tasks=(0,), steps=2), []
    training.step = lambda: counted.append(count_collectives(training.optimizer.step))
    training.train(1, 4)
    return counted[1:]  # ranks meet once more in the first step after a task


def test_a_step_takes_two_collectives_whatever_the_number_of_layers():
    assert run_ranks(2, count_steps, 2)[0] == run_ranks(2, count_steps, 9)[0] == [FSDP_COLLECTIVES] * 3


def measure_bytes(rank, size):
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    training = Training(shard(model, size), use_sfao(), rank, size).run(tasks=(0, 1), steps=2)
    alone = Training(
        nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)),
        use_sfao(sync=False),
    )
    return training.gate.memory_bytes, alone.run(tasks=(0, 1), steps=2).gate.memory_bytes if rank == 0 else 0


def test_a_rank_holds_its_share_of_the_memory():
    found = run_ranks(2, measure_bytes)
    for own, _ in found:
        assert own == pytest.approx(found[0][1] / 2, rel=0.05)
