"""Figures of more methods than they have room for: the best are among those that are shown."""

from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.report.comparison import list_best
from sfao.lab.report.figures.accuracy_matrices import accuracy_matrices
from sfao.lab.report.figures.cost_accuracy import MOST_POINTS, cost_accuracy
from sfao.lab.report.figures.forgetting_curves import forgetting_curves
from sfao.lab.report.figures.style import pick_with
from sfao.lab.report.groups import group_runs
from tests.lab.report.figures.test_drawings import copies


@given(st.integers(0, 60), st.sets(st.integers(0, 60)), st.integers(1, 20))
def test_what_is_wanted_is_picked_and_the_rest_is_filled_in_order(count, wanted, most):
    items = list(range(count))
    found = pick_with(wanted, items, most)
    assert found == sorted(set(found))
    assert len(found) == min(count, most)
    known = wanted & set(items)
    assert known <= set(found) or set(found) <= known


def sweep(run, count):
    """Settings whose best, the only one that is cheap, is at a place that an even choice leaves out."""
    made = []
    for number in range(count):
        is_best = number == count - 2
        config = {**run.record.config, "lr": 0.001 * (number + 1)}
        metrics = {**run.record.metrics, "average_accuracy": 0.9 if is_best else 0.5 + 0.0001 * number}
        made += copies(run, 1, config=config, metrics=metrics, seconds=1.0 if is_best else 5.0, memory_bytes=10)
    return made


def test_the_best_of_many_settings_is_drawn_and_the_line_is_of_all(split):
    (group,) = group_runs(sweep(split.done["sgd"][0], 150))
    best = list_best(group.group, 1)[0]
    drawing = cost_accuracy(group)
    assert [mark.row for mark in drawing.panels[0].marks].count(best) == 1
    assert len(drawing.panels[0].marks) == MOST_POINTS
    assert f"{best} by bytes held for past tasks, {best} by time" in drawing.caption
    assert drawing.caption.startswith("One run each.")
    for figure in (accuracy_matrices, forgetting_curves):
        assert best in [panel.row for panel in figure(group).panels]


def test_what_stores_data_by_its_record_is_hollow_and_not_on_the_line(split):
    first = split.done["sgd"][0]
    own = copies(first, 1, method="own:Replay", stores_data=True)
    (group,) = group_runs([*copies(first, 1), *own])
    drawing = cost_accuracy(group)
    assert "what stores data (own:Replay)" in drawing.caption
    assert [row["isOnFront"] for row in drawing.redraw["rows"]] == [True, False]
