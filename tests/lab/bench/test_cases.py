"""Which cases a sweep consists of."""

import pytest

from sfao.lab.bench.cases import (
    Case,
    StorageChoice,
    Sweep,
    case_bytes,
    combine_storages,
    find_subject,
    plan_groups,
)

DENSE, FACTORED = StorageChoice("dense"), StorageChoice("factored")


def test_directions_samples_and_decisions_are_varied_one_at_a_time():
    sweep = Sweep(("mlp",), directions=(10, 200), samples=(10, None), decisions=("project", "mix"), widths=False)
    groups, left_out = plan_groups(sweep)
    assert left_out == []
    assert [group.title for group in groups] == [
        "mlp, DriftBound",
        "mlp, 10 directions",
        "mlp, 200 directions",
        "mlp, all directions sampled",
        "mlp, mix",
    ]
    assert groups[2].cases == (
        Case("mlp"),
        Case("mlp", 200),
        Case("mlp", 200, DENSE, 10),
        Case("mlp", 200, FACTORED, 10),
    )
    assert groups[3].cases == (Case("mlp"), Case("mlp", 200, DENSE, None), Case("mlp", 200, FACTORED, None))
    assert {case.decisions for case in groups[4].cases[1:]} == {"mix"}
    assert groups[0].cases == (Case("mlp"), Case("mlp", is_bound=True))


def test_the_mlp_is_measured_in_other_widths_too():
    groups, _ = plan_groups(Sweep(("mlp",), (10,), (10,), decisions=("project",)))
    assert [group.cases[0].model for group in groups] == 2 * ["mlp", "mlp-64", "mlp-1024"]


def test_the_released_loop_is_compared_with_where_both_project():
    groups, _ = plan_groups(Sweep(("mlp",), (10,), (10,), decisions=("accept",), widths=False))
    assert [case.name for case in groups[1].cases] == ["SGD", "SFAO dense, float32", "SFAO factored rank 1, float32"]


def test_what_would_hold_too_much_is_left_out_and_named():
    sweep = Sweep(("cnn",), (10, 200), (10,), decisions=("project",), most_bytes=10**8)
    groups, left_out = plan_groups(sweep)
    assert [[case.name for case in group.cases] for group in groups] == [
        ["SGD", "DriftBound"],
        ["SGD", "released-code loop", "SFAO dense, float32", "SFAO factored rank 1, float32"],
        ["SGD", "SFAO factored rank 1, float32"],
    ]
    assert left_out == [
        "cnn, released-code loop, 200 directions: 0.9 GB",
        "cnn, SFAO dense, float32, 200 directions: 0.9 GB",
    ]


def test_a_group_with_nothing_beside_sgd_is_no_group():
    sweep = Sweep(("mlp",), (10,), (10,), (DENSE,), ("project",), widths=False, most_bytes=1000)
    groups, left_out = plan_groups(sweep)
    assert [group.title for group in groups] == ["mlp, DriftBound"]
    assert len(left_out) == 2


def test_rows_have_no_rank():
    assert combine_storages(["dense", "factored"], [1, 4], ["float32"]) == (
        DENSE,
        FACTORED,
        StorageChoice("factored", 4),
    )


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_the_released_loop_holds_a_vector_of_the_whole_model_a_direction(model):
    parameters = sum(parameter.numel() for parameter in find_subject(model).build().parameters())
    assert case_bytes(Case(model, 7)) == 7 * 4 * parameters == case_bytes(Case(model, 7, DENSE))
