import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao import Decision
from sfao.gating.cosine_rule import COSINE_RULE

cosines = st.floats(-1, 1)


def decide(largest: float, accept_above: float, discard_below: float, smallest: float = 0.0, strict: bool = False):
    options = {"accept_above": accept_above, "discard_below": discard_below, "strict": strict}
    accepts, projects, *_ = COSINE_RULE.judge(largest, smallest, *COSINE_RULE.numbers(options), 0.0, 0.0)
    return Decision.ACCEPT if accepts else Decision.PROJECT if projects else Decision.DISCARD


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
    assert decide(largest, 0.5, -0.2) is expected


@given(cosines)
def test_accepting_above_minus_one_always_accepts(largest):
    assert decide(largest, -1, -1) is Decision.ACCEPT


@given(cosines, cosines)
def test_discarding_below_minus_one_never_discards(largest, accept_above):
    assert decide(largest, accept_above, -1) is not Decision.DISCARD


@given(cosines)
def test_discarding_below_one_always_discards(largest):
    assert decide(largest, 1, 1) is Decision.DISCARD


@given(cosines)
def test_accept_one_and_discard_minus_one_always_project(largest):
    assert decide(largest, 1, -1) is Decision.PROJECT


@given(cosines, cosines, st.tuples(cosines, cosines).map(sorted))
def test_a_larger_cosine_is_never_treated_worse(one, other, thresholds):
    below, above = thresholds
    rank = [Decision.DISCARD, Decision.PROJECT, Decision.ACCEPT].index
    low, high = sorted((one, other))
    assert rank(decide(low, above, below)) <= rank(decide(high, above, below))


def test_strict_projects_what_points_against_one_direction():
    assert decide(0.9, 0.5, -0.2, smallest=-0.01) is Decision.ACCEPT
    assert decide(0.9, 0.5, -0.2, smallest=-0.01, strict=True) is Decision.PROJECT
    assert decide(0.9, 0.5, -0.2, smallest=0.0, strict=True) is Decision.ACCEPT
