"""The words for where a run is, and for its pace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.live.sight import Pace, Sight, describe_place, describe_rate, describe_seconds, summarise


def sight(**where):
    return Sight(
        **{"task": 0, "epoch": 0, "epochs": 3, "step": 5, "steps": 90, "names": ("a", "b"), "initial": (0.5,), **where}
    )


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"step": 0, "initial": ()}, "Task 1 of 2: measuring accuracies before the first step"),
        ({"step": 0}, "Task 1 of 2, epoch 1 of 3"),
        ({"task": 1, "epoch": 2}, "Task 2 of 2, epoch 3 of 3"),
        ({"task": 1, "epoch": 3}, "Task 2 of 2: measuring accuracies, storing what later tasks need"),
        ({"task": 2}, "All 2 tasks learnt"),
    ],
)
def test_the_place_in_words(where, words):
    assert describe_place(sight(**where)) == words


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
    assert describe_rate(123.4) == "123 steps a second"
    assert describe_rate(0.5) == "30 steps a minute"


def test_accuracy_and_forgetting_are_of_the_tasks_learnt_so_far():
    assert summarise([]) == {}
    assert summarise([[0.9, 0.1, 0.2]]) == {"accuracy": 0.9, "forgetting": 0.0}
    assert summarise([[0.9, 0.1, 0.2], [0.5, 0.8, 0.3]]) == {"accuracy": 0.65, "forgetting": 0.4}


def test_the_pace_of_a_resumed_run_is_that_of_the_steps_made_here():
    pace = Pace()
    assert pace.rate is None
    assert pace.seconds_left(1000, 0.0) is None
    pace.note(500, 10.0)
    assert pace.rate is None
    pace.note(600, 20.0)
    assert pace.rate == 10.0
    assert pace.seconds_left(1000, 20.0) == 40.0
    assert pace.seconds_left(1000, 25.0) == 35.0
    assert pace.seconds_left(1000, 900.0) == 0.0


def test_a_run_that_went_back_behind_its_first_report_has_no_pace_for_a_while():
    pace = Pace()
    pace.note(500, 10.0)
    pace.note(400, 20.0)
    assert pace.rate is None
    assert pace.seconds_left(1000, 21.0) is None
