import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao import Decision
from sfao.gating.decision import decide

cosines = st.floats(-1, 1)


def decided(largest: float, accept_above: float, discard_below: float, smallest: float = 0.0, strict: bool = False):
    return decide(largest, smallest, accept_above=accept_above, discard_below=discard_below, strict=strict)


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (0.51, Decision.ACCEPT),
        (0.5, Decision.PROJECT),  # not above the upper threshold
        (-0.19, Decision.PROJECT),
        (-0.2, Decision.DISCARD),  # not above the lower one
        (-1.0, Decision.DISCARD),
    ],
)
def test_both_edges_of_both_thresholds(largest, expected):
    assert decided(largest, 0.5, -0.2) is expected


@given(cosines)
def test_accepting_above_minus_one_always_accepts(largest):
    assert decided(largest, -1, -1) is Decision.ACCEPT


@given(cosines, cosines)
def test_discarding_below_minus_one_never_discards(largest, accept_above):
    assert decided(largest, accept_above, -1) is not Decision.DISCARD


@given(cosines)
def test_discarding_below_one_always_discards(largest):
    assert decided(largest, 1, 1) is Decision.DISCARD


@given(cosines)
def test_accept_one_and_discard_minus_one_always_project(largest):
    assert decided(largest, 1, -1) is Decision.PROJECT


@given(cosines, cosines, st.tuples(cosines, cosines).map(sorted))
def test_a_larger_cosine_is_never_treated_worse(one, other, thresholds):
    below, above = thresholds
    rank = [Decision.DISCARD, Decision.PROJECT, Decision.ACCEPT].index
    low, high = sorted((one, other))
    assert rank(decided(low, above, below)) <= rank(decided(high, above, below))


def test_strict_projects_what_points_against_one_direction():
    assert decided(0.9, 0.5, -0.2, smallest=-0.01) is Decision.ACCEPT
    assert decided(0.9, 0.5, -0.2, smallest=-0.01, strict=True) is Decision.PROJECT
    assert decided(0.9, 0.5, -0.2, smallest=0.0, strict=True) is Decision.ACCEPT
