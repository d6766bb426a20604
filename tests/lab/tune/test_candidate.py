"""Candidates: their scores, the best of them, and the table."""

import pytest

from sfao.lab.metrics import summary
from sfao.lab.report.tables import render_markdown
from sfao.lab.run.record import Record
from sfao.lab.tune.candidate import Candidate, choose_best, score_records
from sfao.lab.tune.candidate_table import make_table
from sfao.lab.tune.search import make_search


def record(seed, last, status="done", **more):
    matrix = [[0.9, 0.5], [last, 0.7]]
    return Record(
        benchmark="split-mnist-5k",
        scenario="domain",
        method="ewc",
        seed=seed,
        status=status,
        accuracy_matrix=matrix,
        initial_accuracy=[0.5, 0.5],
        metrics=summary(matrix, [0.5, 0.5]),
        **more,
    )


def candidate(number, *lasts, **more):
    records = [record(seed, last, **more) for seed, last in enumerate(lasts)]
    return Candidate(number, {"options.strength": 10.0 * number}, records, *score_records(records, 2))


def test_the_score_is_the_mean_over_seeds_if_all_are_done():
    assert candidate(0, 0.5, 0.7).score == pytest.approx(0.65)
    assert candidate(0, 0.5).score is None
    assert candidate(0, 0.5).error == "1 of 2 runs have ended"
    failed = [record(0, 0.9), record(1, 0.9, "diverged", error="the loss is nan")]
    assert score_records(failed, 2) == (None, "seed 1 diverged: the loss is nan")


def test_learning_accuracy_is_the_diagonal():
    assert candidate(0, 0.5, 0.7).learning.mean == pytest.approx(0.8)


def test_the_best_has_the_highest_score_and_is_the_first_of_equals():
    tried = [candidate(0, 0.5), candidate(1, 0.5, 0.7), candidate(2, 0.7, 0.5), candidate(3, 0.1, 0.2)]
    assert choose_best(tried).number == 1
    assert choose_best(tried[:1]) is None
    assert choose_best([]) is None


def test_the_table_marks_the_best_and_says_what_was_measured():
    tried = [candidate(0, 0.5, 0.6), candidate(1, 0.8, 0.8, warnings=["too good"]), candidate(2, 0.5)]
    text = render_markdown(make_table(tried, make_search("split-mnist-5k", "ewc", [0, 1], {}), "trial"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[0].startswith("| trial | strength | accuracy | forgetting | learned |")
    assert rows[3] == "| 1 | 10 | **0.750 ± 0.000** | 0.100 ± 0.000 | 0.800 ± 0.000 | best |"
    assert [row.endswith("| best |") for row in rows] == [False, False, False, True, False]
    assert rows[4].endswith("| 1 of 2 runs have ended |")
    assert "Measured on 20 % of the training images, held out of training; test images play no part." in text
    assert "- warning (the best): too good" in text
