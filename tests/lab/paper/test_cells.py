"""The arithmetic of a cell, against numbers worked by hand."""

import pytest

from sfao.lab.paper.cells import Cell, compare_with_paper, make_cell
from sfao.lab.paper.paper import PaperCell


def printed(mean, std=None):
    return PaperCell(1, "Split MNIST", "SGD", "Task 1", mean, std)


def test_two_standard_errors():
    # Ours: mean 70, standard deviation 2 over three seeds; the paper's 0.5 over five.
    # Standard error of the difference: sqrt(0.25 / 5 + 4 / 3) = sqrt(1.38333) = 1.17615.
    found = compare_with_paper(printed(67.8, 0.5), [68.0, 70.0, 72.0])
    assert found.ours.mean == 70
    assert found.ours.std == pytest.approx(2)
    assert found.difference == pytest.approx(2.2)
    assert found.standard_error == pytest.approx(1.17615, abs=1e-5)
    assert found.agrees is True
    assert compare_with_paper(printed(67.6, 0.5), [68.0, 70.0, 72.0]).agrees is False  # 2.4 > 2.3523
    assert compare_with_paper(printed(72.3, 0.5), [68.0, 70.0, 72.0]).agrees is True
    assert compare_with_paper(printed(72.4, 0.5), [68.0, 70.0, 72.0]).agrees is False


def test_what_is_equal_as_printed_agrees_however_small_the_spread():
    assert compare_with_paper(printed(99.9, 0.0), [99.86, 99.87]).agrees is True
    assert compare_with_paper(printed(99.9, 0.0), [99.84, 99.85]).agrees is False


def test_one_seed_has_no_spread_and_so_no_verdict():
    found = compare_with_paper(printed(67.4, 0.5), [60.0])
    assert found.difference == pytest.approx(-7.4)
    assert found.standard_error is found.agrees is None


def test_a_number_of_unknown_spread_gives_no_verdict():
    assert compare_with_paper(printed(75.7), [70.0, 71.0]).agrees is None


def test_a_single_run_is_held_against_the_spread_of_ours():
    values = [0.78, 0.80, 0.82]  # standard deviation 0.02
    inside = compare_with_paper(printed(0.835), values, single=True)
    assert (inside.agrees, inside.in_range) == (True, False)
    assert compare_with_paper(printed(0.845), values, single=True).agrees is False
    assert compare_with_paper(printed(0.81), values, single=True).in_range is True
    assert compare_with_paper(printed(0.81), [0.81], single=True).agrees is None


def test_counts_and_bytes_are_equal_or_not():
    assert compare_with_paper(printed(153.71), [200 * 201474 * 4 / 2**20] * 5, exact=True).agrees is True
    slip = compare_with_paper(printed(7278.00), [9375 * 203530 * 4 / 2**20], exact=True)
    assert slip.agrees is False
    assert slip.difference == pytest.approx(0.80, abs=0.005)


def test_no_runs():
    found = compare_with_paper(printed(67.4, 0.5), [])
    assert found == Cell("Task 1", 67.4, 0.5)
    assert found.difference is found.agrees is found.in_range is None
    assert make_cell("F", [1.0, 2.0]).difference is None
