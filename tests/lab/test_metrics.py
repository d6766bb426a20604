"""The metrics, on properties and on matrices worked by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab import metrics

# Worked by hand: task 0 falls from .9 to .6, task 1 ends at its best, and before it was learnt task 1 was at .5.
MATRIX = [
    [0.9, 0.5, 0.4],
    [0.7, 0.8, 0.3],
    [0.6, 0.85, 0.95],
]
INITIAL = [0.5, 0.45, 0.5]

# What the released notebooks print (three digits; cells they never fill are 0), and the metrics they print for it.
RELEASED = {
    "Split MNIST": (
        [
            [0.998, 0, 0, 0, 0],
            [0.996, 0.873, 0, 0, 0],
            [0.992, 0.862, 0.819, 0, 0],
            [0.982, 0.850, 0.812, 0.964, 0],
            [0.944, 0.770, 0.462, 0.957, 0.834],
        ],
        {"average": 0.7935, "forgetting": 0.1301, "backward": -0.1301, "psm": 0.4350},
    ),
    "Permuted MNIST": (
        [[0.782, 0, 0], [0.774, 0.819, 0], [0.719, 0.798, 0.827]],
        {"average": 0.7815, "forgetting": 0.0417, "backward": -0.0417, "psm": 0.4791},
    ),
}

accuracies = st.floats(0, 1)


@st.composite
def matrices(draw):
    tasks = draw(st.integers(1, 6))
    row = st.lists(accuracies, min_size=tasks, max_size=tasks)
    return draw(st.lists(row, min_size=tasks, max_size=tasks))


@given(matrices())
def test_forgetting_is_never_negative_and_never_below_the_released_one(matrix):
    per_task = metrics.forgetting_per_task(matrix)
    assert len(per_task) == len(matrix) - 1
    assert all(forgotten >= 0 for forgotten in per_task)
    assert metrics.average_forgetting(matrix) >= metrics.average_forgetting_released(matrix) - 1e-12


@given(matrices())
def test_forgetting_is_at_least_what_backward_transfer_lost(matrix):
    assert metrics.average_forgetting(matrix) >= -metrics.backward_transfer(matrix) - 1e-12


@given(matrices())
def test_a_model_that_never_changes_forgets_and_transfers_nothing(matrix):
    frozen = [matrix[0]] * len(matrix)
    assert metrics.average_forgetting(frozen) == 0
    assert metrics.backward_transfer(frozen) == 0
    assert metrics.forward_transfer(frozen, matrix[0]) == 0


@given(matrices())
def test_accuracy_when_learnt_and_what_changed_since_make_the_accuracy_in_the_end(matrix):
    changed = metrics.backward_transfer(matrix) * (len(matrix) - 1) / len(matrix)
    assert metrics.accuracy_when_learnt(matrix) + changed == pytest.approx(metrics.average_accuracy(matrix), abs=1e-12)


@given(matrices(), st.data())
def test_every_metric_of_the_summary_is_bounded(matrix, data):
    initial = data.draw(st.lists(accuracies, min_size=len(matrix), max_size=len(matrix)))
    summary = metrics.summary(matrix, initial)
    assert list(summary) == [
        "average_accuracy",
        "average_forgetting",
        "backward_transfer",
        "forward_transfer",
        "psm",
        "psm_released",
    ]
    for name in ("average_accuracy", "average_forgetting", "psm", "psm_released"):
        assert 0 <= summary[name] <= 1
    for name in ("backward_transfer", "forward_transfer"):
        assert -1 <= summary[name] <= 1


def test_metrics_worked_by_hand():
    assert metrics.average_accuracy(MATRIX) == pytest.approx((0.6 + 0.85 + 0.95) / 3)
    assert metrics.forgetting_per_task(MATRIX) == pytest.approx([0.3, 0.0])
    assert metrics.average_forgetting(MATRIX) == pytest.approx(0.15)
    assert metrics.average_forgetting_released(MATRIX) == pytest.approx((0.3 - 0.05) / 2)
    assert metrics.backward_transfer(MATRIX) == pytest.approx((-0.3 + 0.05) / 2)
    assert metrics.forward_transfer(MATRIX, INITIAL) == pytest.approx(((0.5 - 0.45) + (0.3 - 0.5)) / 2)
    assert metrics.psm(MATRIX) == pytest.approx((0.95 + 0.8) / 2)
    assert metrics.psm_released(MATRIX) == pytest.approx((1 - 0.125) / 2)


def test_rows_before_a_task_was_learnt_count_for_the_paper_and_not_for_the_released_code():
    matrix = [[0.9, 0.8, 0.5], [0.9, 0.7, 0.5], [0.9, 0.6, 0.9]]
    assert metrics.forgetting_per_task(matrix) == pytest.approx([0.0, 0.2])
    assert metrics.average_forgetting_released(matrix) == pytest.approx((0.0 + 0.1) / 2)


@pytest.mark.parametrize("name", RELEASED)
def test_the_released_metrics_are_what_the_released_code_prints(name):
    matrix, printed = RELEASED[name]
    assert metrics.average_accuracy(matrix) == pytest.approx(printed["average"], abs=6e-4)
    assert metrics.average_forgetting_released(matrix) == pytest.approx(printed["forgetting"], abs=6e-4)
    assert metrics.backward_transfer(matrix) == pytest.approx(printed["backward"], abs=6e-4)
    assert metrics.psm_released(matrix) == pytest.approx(printed["psm"], abs=6e-4)


def test_the_printed_psm_of_split_mnist_is_twice_what_the_paper_tabulates():
    assert metrics.psm(RELEASED["Split MNIST"][0]) == pytest.approx((0.834 + 0.7934) / 2)


def test_one_task_has_nothing_to_forget_or_to_transfer():
    assert metrics.forgetting_per_task([[0.7]]) == []
    assert metrics.summary([[0.7]], [0.5]) == {
        "average_accuracy": 0.7,
        "average_forgetting": 0.0,
        "backward_transfer": 0.0,
        "forward_transfer": 0.0,
        "psm": 0.7,
        "psm_released": 0.5,
    }


@pytest.mark.parametrize("convert", [np.array, lambda rows: torch.tensor(rows, dtype=torch.float64)])
def test_arrays_and_tensors_are_taken_like_lists(convert):
    assert metrics.summary(convert(MATRIX), convert(INITIAL)) == metrics.summary(MATRIX, INITIAL)


@pytest.mark.parametrize("matrix", [[], [[]], [[0.5, 0.5]], [[0.5], [0.5]], [[0.5, 0.5], [0.5]]])
def test_a_matrix_that_is_not_square_is_refused(matrix):
    with pytest.raises(ValueError, match="`matrix` must be square"):
        metrics.average_accuracy(matrix)


@pytest.mark.parametrize("accuracy", [-0.1, 93.6, math.nan])
def test_accuracies_outside_their_range_are_refused(accuracy):
    with pytest.raises(ValueError, match=r"`matrix\[1\]` must hold accuracies in \[0, 1\], got"):
        metrics.average_accuracy([[0.5, 0.5], [0.5, accuracy]])
    with pytest.raises(ValueError, match=r"`initial` must hold accuracies in \[0, 1\], got"):
        metrics.forward_transfer([[0.5]], [accuracy])


def test_initial_accuracies_must_be_one_a_task():
    with pytest.raises(ValueError, match=r"`initial` must hold one accuracy a task \(3\), got 2"):
        metrics.forward_transfer(MATRIX, [0.5, 0.5])
