import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.report.tables import best_among

NUMBERS = st.lists(st.integers(-5, 5), max_size=8)


@pytest.mark.parametrize(("choose", "best"), [(max, ["c", "d"]), (min, ["a"])])
def test_all_rows_that_share_the_best_value_are_best(choose, best):
    values = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 3.0}
    is_best = best_among(list(values), values.__getitem__, choose)
    assert [row for row in values if is_best(row)] == best


def test_where_all_are_equal_none_is_best():
    assert not best_among(["a", "b"], lambda row: 1.0, max)("a")
    assert not best_among(["a"], lambda row: 1.0, max)("a")
    assert not best_among([], lambda row: 1.0, max)("a")


def test_a_row_that_does_not_compete_is_never_best():
    assert not best_among([1, 2], float, max)(3)


@given(NUMBERS)
def test_the_highest_are_the_lowest_of_the_negatives(values):
    highest, lowest = best_among(values, float, max), best_among(values, lambda row: -float(row), min)
    assert [highest(value) for value in values] == [lowest(value) for value in values]
