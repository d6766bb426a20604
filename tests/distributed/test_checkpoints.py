"""Distributed checkpoints: saved by some ranks, loaded by others, into optimizers that know nothing yet."""

from pathlib import Path

import pytest
import torch
from torch.distributed import checkpoint

import sfao
from sfao.integrations.dcp import Checkpoint
from tests.distributed.processes import run_ranks
from tests.distributed.sharded import Training, make_model, measure_gap, read_whole, shard

CASES = [
    ("sfao", {"momentum": 0.9}),
    ("sfao", {"storage": "factored", "rank": 2}),
    ("gate", {}),
    ("bound", {}),
]
KINDS = ("sfao", "gate", "bound")

COUNTS = ("tasks", "accept", "project", "discard", "zero", "acted", "clipped")


def make_training(rank, size, optimizer, options):
    model = shard(make_model(), size) if size > 1 else make_model()
    return Training(model, optimizer, options, rank, size)


def save(rank, size, folder, optimizer, options):
    """Train two tasks, save, go on for a few steps."""
    training = make_training(rank, size, optimizer, options).run(tasks=(0, 1), steps=3)
    training.train(2, 2)
    whole = {"model": training.model, "optimizer": Checkpoint(training.optimizer)}
    checkpoint.save(whole, checkpoint_id=folder)
    return go_on(training)


def go_on(training):
    before = read_whole(training.model)
    training.train(2, 2)
    return {
        "before": before,
        "after": read_whole(training.model),
        "counts": {name: value for name, value in training.attached.telemetry().items() if name in COUNTS},
    }


def load(rank, size, folder, optimizer, options):
    training = make_training(rank, size, optimizer, options)
    whole = {"model": training.model, "optimizer": Checkpoint(training.optimizer, folder)}
    checkpoint.load(whole, checkpoint_id=folder)
    return go_on(training)


def run(size, work, *arguments):
    return run_ranks(size, work, *arguments)[0]


@pytest.mark.parametrize(
    ("optimizer", "options", "ranks"),
    [
        *((*case, 4) for case in (CASES[0], CASES[-1])),
        *((*case, 2) for case in CASES[1:-1]),
    ],
    ids=str,
)
def test_a_checkpoint_goes_on_in_fewer_ranks_in_one_and_back_in_as_many(tmp_path, optimizer, options, ranks):
    folder = str(tmp_path / "saved")
    saved = run(ranks, save, folder, optimizer, options)
    assert saved["counts"]["tasks"] == 2
    for size in sorted({2, 1, ranks}):
        found = run(size, load, folder, optimizer, options)
        assert measure_gap(found["before"], saved["before"]) == 0
        assert measure_gap(found["after"], saved["after"]) <= (0 if size == ranks else 1e-6)
        assert found["counts"] == saved["counts"]


@pytest.mark.parametrize("optimizer", KINDS)
def test_a_checkpoint_of_one_process_goes_on_in_two(tmp_path, optimizer):
    folder = str(tmp_path / "saved")
    saved = run(1, save, folder, optimizer, {})
    found = run(2, load, folder, optimizer, {})
    assert measure_gap(found["after"], saved["after"]) <= 1e-6
    assert found["counts"] == saved["counts"]


def save_with_the_loader(rank, size, folder):
    """Save with the object that has loaded, as one dict of all there is suggests."""
    training = make_training(rank, size, "sfao", {}).run(tasks=(0,), steps=3)
    checkpoint.save({"model": training.model, "optimizer": Checkpoint(training.optimizer)}, checkpoint_id=f"{folder}/1")
    again = make_training(rank, size, "sfao", {})
    whole = {"model": again.model, "optimizer": Checkpoint(again.optimizer, f"{folder}/1")}
    checkpoint.load(whole, checkpoint_id=f"{folder}/1")
    checkpoint.save(whole, checkpoint_id=f"{folder}/2")
    last = make_training(rank, size, "sfao", {})
    whole = {"model": last.model, "optimizer": Checkpoint(last.optimizer, f"{folder}/2")}
    checkpoint.load(whole, checkpoint_id=f"{folder}/2")
    last.train(1, 3)
    training.train(1, 3)
    return measure_gap(read_whole(training.model), read_whole(last.model)), last.attached.tasks


def test_what_loaded_a_checkpoint_may_save_the_next(tmp_path):
    assert run(2, save_with_the_loader, str(tmp_path)) == (0.0, 1)


def keep_shards(rank, size, folder):
    training = make_training(rank, size, "sfao", {}).run(tasks=(0,), steps=3)
    torch.save(training.optimizer.state_dict(), f"{folder}/{rank}.pt")
    fresh = make_training(rank, size, "sfao", {})
    fresh.model.load_state_dict(training.model.state_dict())
    fresh.optimizer.load_state_dict(torch.load(f"{folder}/{rank}.pt", weights_only=False))
    training.train(1, 3)
    fresh.train(1, 3)
    return measure_gap(read_whole(training.model), read_whole(fresh.model))


def test_the_state_of_each_rank_is_loaded_by_as_many_ranks(tmp_path):
    assert run(2, keep_shards, str(tmp_path)) == 0


def lose_the_gate(rank, size, optimizer):
    """What torch's own helpers save of an optimizer has no memory in it."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    training = make_training(rank, size, optimizer, {}).run(tasks=(0,), steps=3)
    saved = get_optimizer_state_dict(training.model, training.optimizer)
    fresh = make_training(rank, size, optimizer, {})
    try:
        set_optimizer_state_dict(fresh.model, fresh.optimizer, saved)
    except RuntimeError as error:
        return str(error)
    return "loaded"


@pytest.mark.parametrize("optimizer", KINDS)
def test_a_memory_that_was_left_out_of_a_checkpoint_is_missed(optimizer):
    assert "state_dict" in run(2, lose_the_gate, optimizer)


def test_bad_owners_are_refused():
    model = make_model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="`owner` must have a gate or bound, but this SGD has none"):
        Checkpoint(plain)
    with pytest.raises(ValueError, match="`owner` must be an optimizer, a Gate or a DriftBound, got Sequential"):
        Checkpoint(model)
    with pytest.raises(RuntimeError, match=r"needs the folder to load from: Checkpoint\(optimizer, folder\)"):
        Checkpoint(sfao.SFAO(model, lr=0.1)).load_state_dict({})


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_without_a_gate_is_refused(tmp_path: Path):
    model = make_model()
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=tmp_path, no_dist=True)
    optimizer = sfao.SFAO(model, lr=0.1)
    with pytest.raises(RuntimeError, match=r"`saved` must hold one optimizer with a memory, .*, got none"):
        Checkpoint(optimizer, tmp_path).state_dict()
