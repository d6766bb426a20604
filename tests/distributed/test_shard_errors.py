"""What ranks with shards are refused, with the reason and before anything is changed; and what they are asked."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import sfao
from tests.distributed.processes import run_ranks
from tests.distributed.sharded import (
    LOSS,
    Training,
    make_model,
    make_task,
    measure_gap,
    read_whole,
    shard,
    split_tensors,
    use_adamw,
    use_sfao,
)


def place(layer: nn.Linear, mesh, placements, *, bias=True) -> nn.Linear:
    layer.weight = nn.Parameter(distribute_tensor(layer.weight.data, mesh, placements))
    if bias:
        layer.bias = nn.Parameter(distribute_tensor(layer.bias.data, mesh, placements[:1] * len(placements)))
    return layer


def refuse(make) -> str:
    try:
        make()
    except ValueError as error:
        return str(error)
    return "accepted"


def make_bad(rank, size, kind):
    mesh = init_device_mesh("cpu", (size,))
    if kind == "mixed":
        model = nn.Sequential(place(nn.Linear(4, 6), mesh, [Shard(0)], bias=False))
    elif kind == "meshes":
        two = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("a", "b"))
        model = nn.Sequential(place(nn.Linear(4, 6), two["a"], [Shard(0)]), place(nn.Linear(6, 4), mesh, [Shard(0)]))
    elif kind == "both":
        two = init_device_mesh("cpu", (2, size // 2))
        model = nn.Sequential(place(nn.Linear(4, 6), two, [Shard(0), Shard(1)], bias=False))
        model[0].bias = None
    else:
        model = nn.Sequential(place(nn.Linear(4, 6), mesh, [Shard(0)]))
    how = {"sync": False} if kind == "sync" else {}
    groups = sfao.layer_groups(model)
    return refuse(lambda: sfao.SFAO(groups, lr=0.1, **how)), refuse(lambda: sfao.Gate(sfao.layer_groups(model), **how))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("mixed", "the parameters of a layer must all be DTensors or all be plain, but '0' has both"),
        ("meshes", "all parameters must be sharded over the same ranks, one dimension of one mesh, but those of '0'"),
        ("both", "the parameters of '0' must be sharded over one dimension of the mesh"),
        ("sync", "`sync` must be True where ranks hold one model in shards, got False"),
    ],
)
def test_layers_that_no_rank_could_work_on_are_refused(kind, reason):
    for found in run_ranks(4, make_bad, kind)[0]:
        assert found.startswith(reason)


def consolidate_other_batches(rank, size):
    model = split_tensors(make_model(), size)
    optimizer, gate = use_sfao()(model)
    try:
        optimizer.consolidate(model, make_task(rank), LOSS)
    except (ValueError, RuntimeError) as error:
        return str(error), gate.is_empty, gate.task
    return "accepted", gate.is_empty, gate.task


def test_other_batches_on_ranks_of_tensor_parallel_are_refused():
    for message, is_empty, task in run_ranks(2, consolidate_other_batches):
        assert "the batches must be the same on all ranks that hold one model by tensor parallel" in message
        assert is_empty
        assert task == 0


def fail_on_one(rank, size):
    model = shard(make_model(), size)
    optimizer, gate = use_sfao()(model)
    batches = make_task(0, rank, size)
    if rank == 1:
        batches[0][0][0, 0] = float("nan")
    try:
        optimizer.consolidate(model, batches, LOSS)
    except RuntimeError as error:
        return str(error), gate.is_empty
    return "accepted", gate.is_empty


def test_a_rank_whose_data_are_no_numbers_is_named_and_nothing_is_stored():
    for message, is_empty in run_ranks(2, fail_on_one):
        assert "the batches must be finite, but those of rank 1 were not" in message
        assert is_empty


def diverge(rank, size):
    model = shard(make_model(), size)
    training = Training(model, use_sfao(), rank, size).run(tasks=(0,), steps=2)
    before = read_whole(model)
    training.optimizer.zero_grad()
    LOSS(model(make_task(1, rank, size)[0][0]), make_task(1, rank, size)[0][1]).backward()
    if rank == 1:  # in the rows of one rank alone
        next(model.parameters()).grad.to_local().fill_(float("inf"))
    try:
        training.optimizer.step()
    except ValueError as error:
        return str(error), measure_gap(before, read_whole(model))
    return "accepted", 0.0


def test_a_gradient_that_is_no_number_in_one_shard_is_raised_on_all_ranks():
    for message, gap in run_ranks(2, diverge):
        assert message == "the gradient of layer '0' must be finite, got inf"
        assert gap == 0


def look(rank, size, options):
    """What is asked of a gate over shards, beside one over whole parameters."""
    found = []
    for model, own, shares, sync in ((shard(make_model(), size), rank, size, True), (make_model(), 0, 1, False)):
        training = Training(model, use_sfao(sync=sync, **options), own, shares).run(tasks=(0, 1), steps=4)
        training.train(2, 2)
        kept, risk = training.optimizer.kept(), training.optimizer.risk()
        if "directions" in str(options):
            training.optimizer.remember()
            training.train(2, 1)
        found.append((kept, risk, training.gate.drifts, training.gate.paths, training.gate.telemetry()))
    return found


@pytest.mark.parametrize("options", [{}, {"memory": "directions"}, {"memory": "both"}], ids=str)
def test_looks_are_those_of_one_process(options):
    for sharded, alone in run_ranks(2, look, options):
        for found, wanted in zip(sharded, alone, strict=True):
            if isinstance(wanted, dict):
                found = {name: value for name, value in found.items() if name != "memory_bytes"}
                wanted = {name: value for name, value in wanted.items() if name != "memory_bytes"}
            # Shares of next to nothing differ by a few roundings of float32.
            assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def round_weights(rank, size):
    model = make_model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh("cpu", (size,))
    for layer in (*[module for module in model if list(module.parameters())], model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    training = Training(model, use_adamw(), rank, size).run(tasks=(0, 1), steps=4)
    return training.gate.counts, training.gate.memory_bytes > 0


def test_mixed_precision_is_gated_alike_on_all_ranks():
    (first, holds), (second, _) = run_ranks(2, round_weights)
    assert holds
    assert first == second
    assert any(counts["project"] for counts in first.values())


def replicate(rank, size):
    """Two groups of two ranks, each group with the whole model in shards (HSDP)."""
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("groups", "shards"))
    model = make_model()
    for layer in (*[module for module in model if list(module.parameters())], model):
        fully_shard(layer, mesh=mesh)
    training = Training(model, use_sfao(), rank, size).run(tasks=(0, 1), steps=4)
    whole = read_whole(model)
    alone = Training(make_model(), use_sfao(sync=False)).run(tasks=(0, 1), steps=4) if rank == 0 else None
    gap = 0.0 if alone is None else measure_gap(whole, read_whole(alone.model))
    return gap, training.gate.memory_bytes


def test_groups_of_ranks_with_a_whole_model_each_do_what_one_process_does():
    found = run_ranks(4, replicate)
    assert found[0][0] <= 1e-6
    assert [held for _, held in found[:2]] == [held for _, held in found[2:]]


def test_a_parameter_on_every_rank_counts_once():
    """Replicated parameters are worked on by their rows too, and end the same everywhere."""
    assert run_ranks(2, train_replicated) == [0.0, 0.0]


def train_replicated(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for layer in (models[0][0], models[0][2]):
        place(layer, mesh, [Replicate()])
    optimizers = [use_sfao()(models[0])[0], use_sfao(sync=False)(models[1])[0]]
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for pair in zip(models[0].parameters(), models[1].parameters(), strict=True):
            gradient = torch.randn(pair[1].shape, generator=generator)
            pair[0].grad, pair[1].grad = distribute_tensor(gradient, mesh, [Replicate()]), gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    return measure_gap(read_whole(models[0]), read_whole(models[1]))


def wrap_flat(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(make_model(), device_id=torch.device("cpu"))
    return refuse(lambda: sfao.layer_groups(model))


def test_parameters_in_flat_pieces_are_refused():
    assert (
        "must be sharded by torch.distributed.fsdp.fully_shard, got FullyShardedDataParallel"
        in run_ranks(2, wrap_flat)[0]
    )


def accumulate(rank, size, reduces):
    model = shard(make_model(), size)
    training = Training(model, use_sfao(memory="directions"), rank, size)
    inputs, targets = make_task(0, rank, size)[0]
    model.set_requires_gradient_sync(False)
    LOSS(model(inputs), targets).backward()
    model.set_requires_gradient_sync(reduces)
    try:
        training.consolidate(0)
    except (ValueError, RuntimeError) as error:
        return str(error), training.gate.is_empty
    return "accepted", training.gate.is_empty


@pytest.mark.parametrize("reduces", [False, True])
def test_directions_are_not_stored_while_gradients_are_accumulated(reduces):
    for message, is_empty in run_ranks(2, accumulate, reduces):
        assert "gradients of this model are being accumulated without reduction" in message
        assert is_empty


def look_where_a_rank_holds_nothing(rank, size):
    torch.manual_seed(0)
    model = shard(nn.Sequential(nn.Linear(12, 1), nn.Tanh(), nn.Linear(1, 3)), size)
    training = Training(model, use_sfao(), rank, size).run(tasks=(0,), steps=2)
    training.train(1, 2)
    return training.optimizer.risk(), training.optimizer.kept()


def test_looks_are_the_same_on_a_rank_that_holds_nothing():
    found = run_ranks(4, look_where_a_rank_holds_nothing)
    assert found[0][0] > 0
    assert found == [found[0]] * 4


def train_a_plain_head(rank, size, averages):
    """A layer that was left out when the others were sharded: its gradients are each rank's own."""
    model = make_model()
    for layer in model[:5]:
        if list(layer.parameters()):
            fully_shard(layer, mesh=init_device_mesh("cpu", (size,)))
    training = Training(model, use_sfao(), rank, size)
    try:
        for batch in make_task(0, rank, size):
            training.optimizer.zero_grad()
            LOSS(model(batch[0]), batch[1]).backward()
            if averages:
                for parameter in model[5].parameters():
                    torch.distributed.all_reduce(parameter.grad)
                    parameter.grad /= size
            training.optimizer.step()
    except RuntimeError as error:
        return str(error)
    return "trained"


def test_gradients_that_nobody_has_averaged_are_noticed():
    for message in run_ranks(2, train_a_plain_head, False):
        assert message.startswith("gradients of parameters that every rank holds whole must be the same on all ranks")
    assert run_ranks(2, train_a_plain_head, True) == ["trained"] * 2
