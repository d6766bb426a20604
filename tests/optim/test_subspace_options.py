"""The options of the memory of input spaces: what they say, and what is refused."""

import pytest

from sfao import SFAO, Gate, layer_groups
from tests.optim.test_subspace import LOSS, learn, mlp, task, train


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 1.5}, r"`keep` must be in \[0, 1\], got 1.5"),
        ({"tolerance": 0}, "`tolerance` must be above 0, got 0"),
        ({"restore": 0.5}, "`restore` must be at least 1, got 0.5"),
        ({"axes": 0}, "`axes` must be"),
        ({"memory": "subspaces"}, "`memory` must be one of subspace, directions, both"),
        (
            {"memory": "subspace", "capacity": 5},
            "`capacity` is an option of memory='directions', got it with",
        ),
        ({"memory": "directions", "keep": 0.5}, "`keep` is an option of memory='subspace', got it with memory='dir"),
        ({"keep": 0.5, "accept_above": 0.5}, "`keep` and `accept_above` are options of different memories"),
        ({"memory_budget": "100B"}, "`memory_budget` must hold at least one axis per layer"),
        ({"memory_budget": "1MiB", "storage": "dense"}, "`memory_budget` picks `storage`"),
    ],
)
def test_bad_options(options, message):
    for kind in (SFAO, Gate):
        with pytest.raises(ValueError, match=message):
            kind(layer_groups(mlp()), **options)


def test_the_options_say_which_memory():
    assert SFAO(layer_groups(mlp())).param_groups[0]["memory"] == "subspace"
    assert SFAO(layer_groups(mlp()), accept_above=0.5).param_groups[0]["memory"] == "directions"
    groups = layer_groups(mlp())
    groups[0]["capacity"] = 7
    assert [group["memory"] for group in SFAO(groups).param_groups] == ["directions", "subspace"]
    paper = SFAO.paper(layer_groups(mlp()), 0.1, 0.9).param_groups[0]
    assert (paper["memory"], paper["momentum_form"], paper["lr"], paper["momentum"]) == ("directions", "ema", 0.1, 0.9)


def test_the_memory_of_a_layer_is_fixed():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    optimizer.param_groups[0]["memory"] = "directions"
    with pytest.raises(ValueError, match="`memory` is fixed when a layer is made"):
        train(model, optimizer, task(1))


@pytest.mark.parametrize("argument", [{"target": "logit"}, {"per": "example"}])
def test_arguments_of_gradients_need_directions(argument):
    model = mlp()
    with pytest.raises(ValueError, match="is of stored gradients, but this gate has memory='subspace'"):
        SFAO(layer_groups(model)).consolidate(model, task(1), LOSS, **argument)


def test_remember_needs_directions():
    with pytest.raises(ValueError, match=r"remember\(\) stores gradients, but this gate has memory='subspace'"):
        SFAO(layer_groups(mlp())).remember()


def test_a_model_without_the_gated_parameters_is_refused():
    optimizer = SFAO(layer_groups(mlp()))
    with pytest.raises(ValueError, match="`model` must use the gated parameters"):
        optimizer.consolidate(mlp(), task(1))
    with pytest.raises(ValueError, match="`batches` must yield at least one batch"):
        optimizer.consolidate(mlp(), [])


@pytest.mark.parametrize("memory", ["subspace", "both"])
@pytest.mark.parametrize("budget", [5_200, 7_000])
def test_the_budget_is_kept(memory, budget):
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.05, memory=memory, memory_budget=budget)
    learn(model, optimizer, [1, 2, 3])
    assert budget / 3 < optimizer.memory_bytes <= budget
    assert optimizer.memory_plan.axes == optimizer.param_groups[0]["axes"]
    assert "axes per layer" in str(optimizer.memory_plan)
