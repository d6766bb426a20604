"""Heads and task orders."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.streams.stream import SCENARIOS, count_outputs, make_task, order_tasks, select_outputs


@given(scenario=st.sampled_from(SCENARIOS), tasks=st.integers(1, 6), classes=st.integers(1, 5))
def test_the_heads_of_all_tasks_cover_the_outputs(scenario, tasks, classes):
    size = count_outputs(scenario, tasks, classes)
    slices = [select_outputs(scenario, task, tasks, classes) for task in range(tasks)]
    covered = [list(range(size))[outputs] for outputs in slices]
    assert sorted({output for outputs in covered for output in outputs}) == list(range(size))
    if scenario == "task":
        assert [output for outputs in covered for output in outputs] == list(range(size))
        assert {len(outputs) for outputs in covered} == {classes}
    else:
        assert all(outputs == list(range(size)) for outputs in covered)


@given(tasks=st.integers(1, 8), seed=st.integers(0, 99))
def test_a_random_order_is_a_permutation_that_the_seed_decides(tasks, seed):
    order = order_tasks("random", tasks, seed)
    assert sorted(order) == list(range(tasks))
    assert order == order_tasks("random", tasks, seed)


@pytest.mark.parametrize("order", ["2,0,1", "2, 0, 1", [2, 0, 1], (2, 0, 1), torch.tensor([2, 0, 1])])
def test_an_order_is_given_as_text_or_as_numbers(order):
    assert order_tasks(order, 3, seed=0) == (2, 0, 1)


@pytest.mark.parametrize("order", ["2,0", "0,0,1", "1,2,3", "a,b,c", "", "randm", [0, 1], [0, 1, None]])
def test_orders_that_do_not_name_every_task_once_are_refused(order):
    with pytest.raises(ValueError, match="`order` must be 'random' or name each task from 0 to 2 once, got"):
        order_tasks(order, 3, seed=0)


@pytest.mark.parametrize(("train", "test", "kind"), [(0, 4, "training"), (4, 0, "test")])
def test_a_task_without_examples_is_refused(tiny, train, test, kind):
    dataset = tiny(classes=2, train=train, test=test)
    with pytest.raises(ValueError, match=f"task '0/1' of 'tiny' has no {kind} examples"):
        make_task(dataset, "0/1", slice(0, 2), torch.arange(2), torch.zeros(2 * train, dtype=torch.bool))
