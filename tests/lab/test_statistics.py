from math import sqrt

import pytest
from scipy import stats

from sfao.lab.metrics import paired_test, spread, standard_deviation


def test_spread_of_three_values_by_hand():
    """2, 4, 9: mean 5, squares 9 + 1 + 16 = 26, variance 13; t(2) at .975 is 4.302653."""
    found = spread([2, 4, 9])
    assert (found.n, found.mean) == (3, 5)
    assert found.std == pytest.approx(sqrt(13))
    half = 4.302653 * sqrt(13) / sqrt(3)
    assert (found.low, found.high) == pytest.approx((5 - half, 5 + half), rel=1e-6)


def test_one_value_has_no_spread():
    found = spread([0.7])
    assert (found.n, found.mean, found.std, found.low, found.high) == (1, 0.7, None, None, None)


def test_equal_values_have_an_interval_of_no_width():
    found = spread([0.5, 0.5, 0.5])
    assert (found.std, found.low, found.high) == (0, 0.5, 0.5)


def test_no_values_are_refused():
    with pytest.raises(ValueError, match="`values` must hold at least one number, got none"):
        spread([])


def test_standard_deviation_divides_by_n_minus_one():
    assert standard_deviation([1, 3]) == pytest.approx(sqrt(2))


def test_paired_test_by_hand():
    """Differences 1, 2, 3: mean 2, std 1, t = 2 sqrt(3); p with 2 degrees of freedom is 1 - t / sqrt(t^2 + 2)."""
    found = paired_test({0: 2.0, 1: 4.0, 2: 6.0}, {0: 1.0, 1: 2.0, 2: 3.0}, "sgd")
    assert (found.against, found.n, found.difference, found.reason) == ("sgd", 3, 2, "")
    assert found.p == pytest.approx(1 - sqrt(12) / sqrt(14))


def test_paired_test_agrees_with_scipy_whatever_the_sign():
    ours, theirs = [0.71, 0.69, 0.74, 0.70, 0.66], [0.75, 0.70, 0.73, 0.78, 0.69]
    found = paired_test(dict(enumerate(ours)), dict(enumerate(theirs)), "ewc")
    assert found.p == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert found.difference < 0


def test_only_common_seeds_are_paired():
    found = paired_test({0: 1.0, 1: 2.0, 5: 100.0}, {0: 0.0, 1: 0.5, 7: -100.0}, "sgd")
    assert (found.n, found.difference) == (2, 1.25)


@pytest.mark.parametrize(
    ("theirs", "n", "difference", "reason"),
    [({0: 0.25}, 1, 0.25, "1 common seed, a test"), ({9: 0.25}, 0, None, "0 common seeds, a test")],
)
def test_fewer_than_two_pairs_give_no_p(theirs, n, difference, reason):
    found = paired_test({0: 0.5, 1: 0.75}, theirs, "sgd")
    assert (found.n, found.difference, found.p) == (n, difference, None)
    assert found.reason.startswith(reason)


def test_equal_results_are_no_evidence_at_all():
    assert paired_test({0: 0.1, 1: 0.2}, {0: 0.1, 1: 0.2}, "sgd").p == 1


def test_a_constant_difference_has_no_p_even_when_rounding_spreads_it():
    """.3 - .2 and .2 - .1 differ in the last bit: a t of 1e15 would be an artefact."""
    found = paired_test({0: 0.3, 1: 0.2}, {0: 0.2, 1: 0.1}, "sgd")
    assert found.p is None
    assert found.reason == "the difference is the same for every seed"
    assert found.difference == pytest.approx(0.1)
