"""FSDP2 and tensor parallel, in real processes: the gate does what it does in one."""

import warnings

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from sfao.layers import layer_groups
from sfao.optimizer import SFAO
from tests.distributed.processes import run_ranks
from tests.distributed.sharded import (
    CLASSES,
    INPUTS,
    LOSS,
    Training,
    make_model,
    make_task,
    measure_gap,
    read_whole,
    shard,
    split_tensors,
)


def make_convolutions():
    torch.manual_seed(0)
    body = [nn.Conv2d(1, 5, 3), nn.GroupNorm(1, 5), nn.ReLU(), nn.Conv2d(5, 6, (2, 1)), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(nn.Unflatten(1, (1, 4, 3)), *body, nn.Linear(6, CLASSES))


def shard_lazily(model, size):
    """Parameters stay whole after a forward pass, until something cuts them again."""
    return fully_shard(model, mesh=init_device_mesh("cpu", (size,)), reshard_after_forward=False)


CUTS = {"fsdp": shard, "lazy": shard_lazily, "tensors": split_tensors}
MODELS = {"linear": make_model, "convolutions": make_convolutions}


def compare(rank, size, cut, model, kind, options, how):
    """Train in shards and, on the first rank, in one process; return how far they are from each other."""
    warnings.simplefilter("ignore", RuntimeWarning)
    own = (0, 1) if cut == "tensors" else (rank, size)
    sharded = CUTS[cut](MODELS[model](), size)
    training = Training(sharded, kind, options, *own).run(**how)
    training.train(3, 1)
    risks = [training.owner.risk(), training.owner.risk(sampled=True)]
    whole, kept = read_whole(sharded), training.owner.kept()
    found = {"bytes": training.attached.memory_bytes, "counts": training.attached.counts}
    if rank == 0:
        alone = Training(MODELS[model](), kind, {**options, "sync": False}).run(**how)
        alone.train(3, 1)
        found["gap"] = measure_gap(whole, read_whole(alone.model))
        found["risk"] = max(
            abs(a - b) for a, b in zip(risks, [alone.owner.risk(), alone.owner.risk(sampled=True)], strict=True)
        )
        found["kept"] = max(abs(kept[name] - alone.owner.kept()[name]) for name in kept)
        found["same"] = training.decisions == alone.decisions and training.attached.counts == alone.attached.counts
        found["decided"] = {str(decision) for step in alone.decisions for decision in step.values()}
        found["all_bytes"] = alone.attached.memory_bytes
    return found


PROJECT = {"accept_above": 1.0, "discard_below": -1.0}
CASES = [
    ("fsdp", "linear", "sfao", {"capacity": 5}, {}),
    ("fsdp", "linear", "sfao", {"momentum": 0.9, "weight_decay": 0.01, **PROJECT}, {"target": "logit"}),
    ("fsdp", "linear", "sfao", {**PROJECT, "granularity": "global"}, {}),
    ("fsdp", "linear", "sfao", {**PROJECT, "admit_below": 0.7, "capacity": 4}, {}),
    ("fsdp", "linear", "sfao", {**PROJECT, "storage": "factored", "rank": 2, "memory_dtype": "bfloat16"}, {}),
    ("fsdp", "linear", "gate", {"projection": "sequential"}, {"per": "example"}),
    ("fsdp", "convolutions", "sfao", {}, {}),
    ("fsdp", "convolutions", "gate", {"storage": "factored", "projection": "cone"}, {}),
    ("lazy", "linear", "sfao", {}, {}),
    ("tensors", "linear", "sfao", PROJECT, {}),
    ("tensors", "linear", "gate", {"storage": "factored"}, {"target": "logit"}),
]


@pytest.mark.parametrize(("cut", "model", "kind", "options", "how"), CASES, ids=str)
def test_two_ranks_do_what_one_process_does(cut, model, kind, options, how):
    found = run_ranks(2, compare, cut, model, kind, options, how)
    assert found[0]["same"]
    assert found[0]["gap"] <= 1e-6
    assert found[0]["risk"] <= 1e-5
    assert found[0]["kept"] <= 1e-3
    assert found[0]["decided"] - {"accept"}
    assert found[0]["counts"] == found[1]["counts"]
    assert found[0]["bytes"] == found[1]["bytes"] == found[0]["all_bytes"]


def test_four_ranks_of_which_some_hold_nothing_of_a_layer():
    found = run_ranks(4, compare, "fsdp", "linear", "sfao", PROJECT, {})
    assert found[0]["same"]
    assert found[0]["gap"] <= 1e-6


def keep_gradients(rank, size):
    model = shard_lazily(make_model(), size)
    model(torch.zeros(2, INPUTS))  # parameters are whole from here on
    training = Training(model, "sfao", {}, rank, size)
    training.train(0, 2)
    before = [parameter.grad.full_tensor() for parameter in model.parameters()]
    model(torch.zeros(2, INPUTS))
    training.owner.consolidate(make_task(0, rank, size), LOSS)
    return measure_gap(before, [parameter.grad.full_tensor() for parameter in model.parameters()])


def test_consolidating_leaves_gradients_as_they_are():
    assert run_ranks(2, keep_gradients) == [0.0, 0.0]


def remember_sharded(rank, size, options):
    found = []
    for model, own, sync in ((shard(make_model(), size), (rank, size), True), (make_model(), (0, 1), False)):
        training = Training(model, "sfao", {**PROJECT, **options, "sync": sync}, *own)
        for task in range(4):
            training.backward(task)
            training.owner.remember()
        training.train(5, 2)
        found.append((training.attached.counts, read_whole(model)))
    (counts, weights), (counts_alone, weights_alone) = found
    return counts == counts_alone, measure_gap(weights, weights_alone)


@pytest.mark.parametrize("options", [{}, {"storage": "factored"}], ids=str)
def test_remember_does_what_one_process_does(options):
    for is_same, gap in run_ranks(2, remember_sharded, options):
        assert is_same
        assert gap <= 1e-6


def save_and_load(rank, size, options):
    """Continue from the state of shards, and from that of one process, beside training without a break."""
    warnings.simplefilter("ignore", RuntimeWarning)
    training = Training(shard(make_model(), size), "sfao", options, rank, size).run(tasks=range(2))
    gaps = []
    for source in ("shards", "whole"):
        state = training.optimizer.state_dict()
        if source == "whole":
            alone = Training(make_model(), "sfao", {**options, "sync": False}).run(tasks=range(2))
            state = alone.optimizer.state_dict()
            state = {**state, "state": {}}
        other = Training(shard(make_model(), size), "sfao", options, rank, size)
        with torch.no_grad():
            for parameter, weight in zip(other.model.parameters(), training.model.parameters(), strict=True):
                parameter.copy_(weight)
        other.optimizer.load_state_dict(state)
        other.train(2, 2)
        gaps.append(read_whole(other.model))
    training.train(2, 2)
    return [measure_gap(weights, read_whole(training.model)) for weights in gaps], training.attached.counts


@pytest.mark.parametrize("options", [PROJECT, {**PROJECT, "storage": "factored"}], ids=str)
def test_states_of_shards_and_of_one_process_load(options):
    for gaps, counts in run_ranks(2, save_and_load, options):
        assert max(gaps) <= 1e-6
        assert sum(of_layer["project"] for of_layer in counts.values()) > 0


# -- Errors ------------------------------------------------------------------------------------------------


def refuse(make):
    try:
        make()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return "accepted"


def make_bad(rank, size, kind):
    model = make_model()
    if kind == "flat":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    else:
        shard(model, size)
    return refuse(lambda: SFAO(model, lr=0.1, sync=kind != "sync"))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("sync", "`sync` must be True for a model in shards, got False"),
        ("flat", "`model` must be sharded by torch.distributed.fsdp.fully_shard, got FullyShardedDataParallel"),
    ],
)
def test_parameters_that_cannot_be_gated(kind, reason):
    assert run_ranks(2, make_bad, kind)[0].startswith(reason)


def consolidate_badly(rank, size):
    training = Training(shard(make_model(), size), "sfao", {}, rank, size)
    batches = make_task(0, rank, size)
    if rank == 1:
        batches[0][0][0, 0] = float("nan")
    return (
        refuse(lambda: training.owner.consolidate(batches, LOSS)),
        training.attached.is_empty,
        training.attached.tasks,
    )


def test_bad_batches_are_refused_on_all_ranks():
    for message, is_empty, tasks in run_ranks(2, consolidate_badly):
        assert "the loss of a past task must be finite, got nan" in message
        assert is_empty
        assert tasks == 0


def diverge(rank, size):
    training = Training(shard(make_model(), size), "sfao", {}, rank, size).run(tasks=[0], steps=2)
    before = read_whole(training.model)
    training.backward(1)
    if rank == 1:  # in the rows of one rank alone
        next(training.model.parameters()).grad.to_local().fill_(float("inf"))
    return refuse(training.optimizer.step), measure_gap(before, read_whole(training.model))


def test_a_gradient_that_is_not_finite_in_one_shard_raises_on_all_ranks():
    for message, gap in run_ranks(2, diverge):
        assert message == "the gradient of layer '0' must be finite, got inf"
        assert gap == 0


def train_mixed(rank, size):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    training = Training(shard(make_model(), size, mp_policy=policy), "gate", {}, rank, size).run(tasks=range(2))
    return training.attached.counts, layer_groups(training.model)[0]["name"]


def test_mixed_precision_is_gated_alike_on_all_ranks():
    first, second = run_ranks(2, train_mixed)
    assert first == second
    assert any(counts["project"] for counts in first[0].values())


def replicate(rank, size):
    """Two groups of two ranks, each group with the whole model in shards (HSDP)."""
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("groups", "shards"))
    model = make_model()
    for layer in (*[module for module in model if list(module.parameters())], model):
        fully_shard(layer, mesh=mesh)
    Training(model, "sfao", PROJECT, rank, size).run(tasks=range(2))
    whole = read_whole(model)
    alone = Training(make_model(), "sfao", {**PROJECT, "sync": False}).run(tasks=range(2)) if rank == 0 else None
    return 0.0 if alone is None else measure_gap(whole, read_whole(alone.model))


def test_groups_of_ranks_with_a_whole_model_each_do_what_one_process_does():
    assert max(run_ranks(4, replicate)) <= 1e-6
