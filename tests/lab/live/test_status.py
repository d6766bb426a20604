"""The words for the place of a run and for its speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.live.status import Throughput, describe_place, describe_rate, describe_seconds, summarize


@pytest.mark.parametrize(
    ("place", "has_begun", "words"),
    [
        ((0, 2, 0, 3), False, "Task 1 of 2: measuring accuracies before the first step"),
        ((0, 2, 0, 3), True, "Task 1 of 2, epoch 1 of 3"),
        ((1, 2, 2, 3), True, "Task 2 of 2, epoch 3 of 3"),
        ((1, 2, 3, 3), True, "Task 2 of 2: measuring accuracies, storing what later tasks need"),
        ((2, 2, 0, 3), True, "All 2 tasks learned"),
    ],
)
def test_the_place_in_words(place, has_begun, words):
    assert describe_place(*place, has_begun=has_begun) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.2, "1 s"),
        (59.5, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_times_in_words(seconds, words):
    assert describe_seconds(seconds) == words


@given(st.floats(0, 1e9))
def test_a_time_in_words_has_no_unit_that_overflows(seconds):
    words = describe_seconds(seconds).split()
    limits = {"s": 60, "min": 60, "h": 24, "d": 1e9}
    assert all(int(number) < limits[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


def test_slow_runs_have_a_speed_too():
    assert describe_rate(123.4) == "123 steps per second"
    assert describe_rate(0.5) == "30 steps per minute"


def test_accuracy_and_forgetting_are_of_the_tasks_learned_so_far():
    assert summarize([]) == {}
    assert summarize([[0.9, 0.1, 0.2]]) == {"accuracy": 0.9, "forgetting": 0.0}
    assert summarize([[0.9, 0.1, 0.2], [0.5, 0.8, 0.3]]) == {"accuracy": 0.65, "forgetting": 0.4}


def test_the_rate_of_a_resumed_run_is_that_of_the_steps_made_here():
    throughput = Throughput()
    assert throughput.rate is None
    assert throughput.seconds_left(1000, 0.0) is None
    throughput.add(500, 10.0)
    assert throughput.rate is None
    throughput.add(600, 20.0)
    assert throughput.rate == 10.0
    assert throughput.seconds_left(1000, 20.0) == 40.0
    assert throughput.seconds_left(1000, 25.0) == 35.0
    assert throughput.seconds_left(1000, 900.0) == 0.0


def test_a_run_that_went_back_behind_its_first_report_has_no_rate_for_a_while():
    throughput = Throughput()
    throughput.add(500, 10.0)
    throughput.add(400, 20.0)
    assert throughput.rate is None
    assert throughput.seconds_left(1000, 21.0) is None
