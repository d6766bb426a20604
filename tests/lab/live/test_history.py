"""The course of a run in a bounded number of stretches."""

import json
from math import isclose, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.live.history import MOST_STRETCHES, History


def line(number, task=0, loss=1.0, **layers):
    """The line of a step; of each layer {decisions so far} and looks."""
    decisions = {
        name: dict(zip(("accept", "project", "discard", "zero"), counts, strict=True))
        for name, (counts, _) in layers.items()
    }
    looks = {name: seen for name, (_, seen) in layers.items() if seen}
    return {"step": 20 * number, "task": task, "epoch": 0, "loss": loss, "decisions": decisions, "gate": looks}


def history_of(lines):
    made = History()
    for each in lines:
        made.add(each)
    return made


@given(st.integers(1, 700), st.integers(0, 2**16))
def test_the_stretches_are_few_and_lose_nothing(count, seed):
    losses = [(seed * number) % 97 / 7 for number in range(1, count + 1)]
    lines = [
        line(number, loss=loss, a=((number, 2 * number, 0, 0), {"kept": loss / 14}))
        for number, loss in enumerate(losses, start=1)
    ]
    stretches = history_of(lines).stretches
    assert len(stretches) < 2 * MOST_STRETCHES
    assert len(stretches) >= min(count, MOST_STRETCHES)
    assert [s.step for s in stretches] == sorted(s.step for s in stretches)
    assert stretches[-1].step == 20 * count
    assert stretches[-1].layers[0].counts == (count, 2 * count, 0, 0)
    assert sum(s.lines for s in stretches) == sum(s.loss.count for s in stretches) == count
    assert isclose(sum(s.loss.total for s in stretches), sum(losses), abs_tol=1e-6)
    assert max(s.lines for s in stretches) <= 2 * min(s.lines for s in stretches[:-1] or stretches)
    for stretch in stretches:
        assert 2 * stretch.step / 20 == stretch.layers[0].counts[1]
        assert isclose(stretch.layers[0].looks[0].total * 14, stretch.loss.total, abs_tol=1e-6)


@pytest.mark.parametrize("length", [3, 111])
def test_new_tasks_are_marked_where_they_begin_and_where_they_are_few_stretches_end_there(length):
    count = 5 * MOST_STRETCHES
    made = history_of(line(number, task=number // length) for number in range(count))
    ends = [20 * (end - 1) for end in range(length, count, length)]
    assert made.task_ends == ends
    assert len(made.stretches) < 2 * MOST_STRETCHES
    assert (set(ends) <= {stretch.step for stretch in made.stretches}) == (length == 111)


def test_the_page_gets_counts_and_looks_by_layer_and_null_for_what_is_not_there():
    made = history_of(
        [
            line(1, loss=0.5, a=((20, 0, 0, 0), {})),
            line(
                2, loss=0.25, a=((20, 19, 1, 0), {"kept": 0.123456, "drift": 0.5}), b=((0, 0, 0, 40), {"cosine": -1.0})
            ),
        ]
    )
    assert json.loads(made.as_json()) == {
        "layers": ["a", "b"],
        "taskEnds": [],
        "stretches": [
            [20, 0, 0, 0.5, [[20, 0, 0, 0, None, None, None]]],
            [40, 0, 0, 0.25, [[20, 19, 1, 0, 0.1235, 0.5, None], [0, 0, 0, 40, None, None, -1.0]]],
        ],
    }


def test_numbers_that_are_not_finite_are_left_out_of_means():
    made = history_of([line(1, loss=nan, a=((1, 0, 0, 0), {"kept": nan}))])
    assert json.loads(made.as_json())["stretches"] == [[20, 0, 0, None, [[1, 0, 0, 0, None, None, None]]]]


def test_names_of_layers_that_act_are_shown():
    made = history_of([line(1, **{"a\x1b\u202e</script>": ((1, 0, 0, 0), {})})])
    assert json.loads(made.as_json())["layers"] == ["a\\x1b\\u202e</script>"]
    assert "\n" not in made.as_json()


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "20"},
        {"step": -1},
        {"task": None},
        {"loss": "low"},
        {"decisions": []},
        {"decisions": {"a": {"accept": 1}}},
        {"gate": None},
    ],
)
def test_a_line_that_is_none_is_refused_and_changes_no_stretch(changes):
    made = history_of([line(1, a=((20, 0, 0, 0), {}))])
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        made.add({**line(2, a=((40, 0, 0, 0), {})), **changes})
    assert [stretch.step for stretch in made.stretches] == [20]


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=600))
def test_lines_at_any_steps_make_few_stretches_none_of_which_is_too_wide(gaps):
    steps = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    made = history_of({**line(1), "step": step} for step in steps)
    assert len(made.stretches) < 2 * MOST_STRETCHES
    ends = [0, *(stretch.step for stretch in made.stretches)]
    for begin, end, stretch in zip(ends, ends[1:], made.stretches, strict=False):
        assert stretch.lines == 1 or end - begin <= 4 * steps[-1] / MOST_STRETCHES
