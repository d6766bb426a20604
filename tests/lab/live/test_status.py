"""The words for the place of a run and for its speed."""

import pytest

from sfao.lab.live.status import Throughput, describe_seconds, summarize


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
