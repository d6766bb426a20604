import pytest
import torch
from torch import nn

from sfao import SFAO, Gate, layer_groups
from sfao.gating.budget import format_bytes, parse_bytes


def mlp():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


@pytest.mark.parametrize(
    ("text", "size"), [("64MiB", 64 * 2**20), ("1.5 GB", 1_500_000_000), ("10kb", 10_000), (4096, 4096), ("7", 7)]
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["64 parsecs", "", "-1MB", "MiB", "1e3", None, 2.5j])
def test_bad_sizes(text):
    with pytest.raises(ValueError, match="memory_budget"):
        parse_bytes(text)


def test_sizes_are_shown():
    assert [format_bytes(n) for n in (12, 2048, 5 * 2**20, 3 * 2**30)] == ["12 B", "2.0 KiB", "5.0 MiB", "3.0 GiB"]


@pytest.mark.parametrize(
    ("budget", "plan"),
    [
        ("1GiB", ("dense", "float32", 200)),
        ("100MiB", ("dense", "bfloat16", 200)),
        ("64MiB", ("factored", "float32", 200)),
        ("1MiB", ("factored", "float32", 200)),
        ("600KiB", ("factored", "bfloat16", 200)),
        ("100KiB", ("factored", "bfloat16", 39)),
    ],
)
def test_the_most_faithful_storage_that_fits(budget, plan):
    optimizer = SFAO(layer_groups(mlp()), memory="directions", memory_budget=budget)
    picked = optimizer.memory_plan
    assert (picked.storage.kind, picked.storage.dtype, picked.capacity) == plan
    assert str(picked.storage) in str(picked)
    assert str(picked.capacity) in str(picked)
    assert optimizer.param_groups[0]["capacity"] == picked.capacity


@pytest.mark.parametrize("budget", ["200KiB", "2MiB", "64MiB"])
def test_the_budget_is_kept_when_the_memory_is_full(budget):
    model = mlp()
    optimizer = SFAO(layer_groups(model), memory="directions", memory_budget=budget)
    for _ in range(210):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.remember()
    assert optimizer.memory_bytes == optimizer.memory_plan.bytes <= parse_bytes(budget)


def test_capacity_says_how_many_are_wanted():
    assert (
        SFAO(layer_groups(mlp()), memory="directions", memory_budget="64MiB", capacity=50).memory_plan.storage.kind
        == "dense"
    )


def test_too_small_for_one_direction():
    with pytest.raises(
        ValueError, match=r"`memory_budget` must hold at least one direction a layer, 2.6 KiB .* 2.0 KiB"
    ):
        SFAO(layer_groups(mlp()), memory="directions", memory_budget="2KiB")


def test_the_smallest_storage_is_found_for_any_model():
    assert SFAO(layer_groups(nn.LayerNorm(1000)), memory="directions", memory_budget=4000).memory_plan.capacity == 1
    assert SFAO(layer_groups(nn.Linear(784, 256)), memory="directions", memory_budget=4200).memory_plan.capacity == 2


def test_a_capacity_of_one_group_is_no_plan():
    groups = layer_groups(mlp())
    groups[0]["capacity"] = 3
    with pytest.raises(ValueError, match="`memory_budget` picks `capacity`"):
        SFAO(groups, memory_budget="1MiB")


@pytest.mark.parametrize("option", [{"storage": "dense"}, {"rank": 2}, {"memory_dtype": "float32"}])
def test_a_budget_picks_the_storage_itself(option):
    with pytest.raises(ValueError, match="give one of the two"):
        Gate(layer_groups(mlp()), memory="directions", memory_budget="64MiB", **option)


def test_a_group_that_would_break_the_budget_is_refused():
    optimizer = SFAO(layer_groups(mlp()), memory="directions", memory_budget="1MiB")
    with pytest.raises(ValueError, match="`memory_budget`"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.randn(500, 500))]})
    assert len(optimizer.param_groups) == 2
    optimizer.add_param_group({"params": [nn.Parameter(torch.randn(2))]})
