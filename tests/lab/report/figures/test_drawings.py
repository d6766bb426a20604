"""What the figures show is what the records say."""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from sfao.lab.methods import METHODS
from sfao.lab.report.figures import draw_figures
from sfao.lab.report.figures.accuracy_matrices import accuracy_matrices
from sfao.lab.report.figures.cost_accuracy import Point, cost_accuracy, pareto_front
from sfao.lab.report.figures.decisions_over_time import decisions_over_time
from sfao.lab.report.figures.forgetting_curves import forgetting_curves, spread_out
from sfao.lab.report.groups import group_runs
from sfao.lab.report.runs import load_runs
from sfao.lab.run.record import Record


def titles(figure):
    return [ax.get_title(loc="left") for ax in figure.axes]


def texts(ax):
    return [text.get_text() for text in ax.texts]


def matrices(runs):
    return np.array([run.record.accuracy_matrix for run in runs])


def copies(run, count, **changes):
    """Runs that differ in their seed, of a record that says something else."""
    made = []
    for seed in range(count):
        record = Record(**{**vars(run.record), "seed": seed, **changes})
        made.append(replace(run, name=f"{run.name}-{seed}", record=record))
    return made


def deep(run, layers):
    """The run as if its first layer had been as many."""
    names = [f"block{number}" for number in range(layers)]
    (first, *_) = run.record.decisions
    steps = [
        {**line, **{key: dict.fromkeys(names, line[key][first]) if line[key] else {} for key in ("decisions", "gate")}}
        for line in run.steps
    ]
    return replace(run, steps=steps)


def test_a_group_gets_the_figures_that_it_has_data_for(runs, drawn):
    split = "-split-mnist-5k-domain"
    assert [drawing.name.removesuffix(split) for drawing in drawn if drawing.name.endswith(split)] == [
        "cost-accuracy", "accuracy-matrices", "forgetting", "update-geometry", "decisions", "cosines",
    ]  # fmt: skip
    assert [drawing.name for drawing in drawn if not drawing.name.endswith(split)] == [
        "accuracy-matrices-permuted-mnist-5k-domain", "forgetting-permuted-mnist-5k-domain",
    ]  # fmt: skip
    (alone,) = group_runs([run for run in runs if run.name == "sgd-0"])
    assert [drawing.name for drawing in draw_figures(alone)] == ["accuracy-matrices", "forgetting"]


def test_without_a_run_that_is_done_there_is_nothing_to_draw(runs):
    (group,) = group_runs([run for run in runs if run.record.status == "diverged"])
    assert draw_figures(group) == []


def test_every_figure_has_words(drawn):
    for drawing in drawn:
        assert drawing.title
        assert drawing.caption.endswith(".")
        assert any(letter.isdigit() for letter in drawing.alt), drawing.name


def test_the_cells_of_a_heat_map_are_means_over_seeds(split):
    figure = accuracy_matrices(split).figure
    assert titles(figure) == list(split.done)
    for ax, runs in zip(figure.axes, split.done.values(), strict=True):
        assert all(text.isdigit() for text in texts(ax)), "one format for all"
        shown = [int(text) / 100 for text in texts(ax)]
        assert shown == pytest.approx(matrices(runs).mean(axis=0).ravel(), abs=0.0051)


def test_the_lines_of_forgetting_start_where_a_task_was_learnt(split):
    figure = forgetting_curves(split).figure
    for ax, runs in zip(figure.axes, split.done.values(), strict=True):
        *tasks, average = ax.lines
        mean = matrices(runs).mean(axis=0)
        for task, line in enumerate(tasks):
            assert list(line.get_xdata()) == list(range(task + 1, len(mean) + 1))
            assert line.get_ydata() == pytest.approx(mean[task:, task])
        # What the thick line ends in is the paper's average accuracy.
        ends = np.mean([run.record.metrics["average_accuracy"] for run in runs])
        assert average.get_ydata()[-1] == pytest.approx(ends)


def test_the_points_of_cost_are_the_rows_of_the_table(split):
    left, right = cost_accuracy(split).figure.axes
    rows = [row for row in split.group.rows if row.done]
    for ax, costs in ((left, [row.memory_bytes for row in rows]), (right, [row.seconds for row in rows])):
        points = [container[0] for container in ax.containers]
        assert [point.get_ydata()[0] for point in points] == pytest.approx([row.accuracy.mean for row in rows])
        for point, cost in zip(points, costs, strict=True):
            # Nothing held has a place of its own, left of everything.
            if cost:
                assert point.get_xdata()[0] == pytest.approx(cost)
            else:
                assert 0 < point.get_xdata()[0] < min(filter(None, costs))
        assert texts(ax) == [row.method for row in rows]


def crowd(run, count):
    """As many rows that cost nearly the same and are nearly as accurate."""
    made = []
    for number in range(count):
        config = {**run.record.config, "options": {**run.options, "accept_above": round(0.3 + 0.04 * number, 2)}}
        metrics = {**run.record.metrics, "average_accuracy": 0.8 + 0.004 * (number * 3 % count)}
        held, seconds = 1_000_000 + 30_000 * (number % 4), 10 + 0.2 * (number * 3 % 7)
        made += copies(run, 1, config=config, metrics=metrics, memory_bytes=held, seconds=seconds)
    return made


@pytest.mark.parametrize("count", [6, 14, 20])
def test_labels_of_many_costs_cover_neither_points_nor_one_another(split, count):
    (group,) = group_runs(crowd(split.done["sfao"][0], count))
    figure = cost_accuracy(group).figure
    for ax in figure.axes:
        boxes = [Text.get_window_extent(text) for text in ax.texts]
        points = [ax.transData.transform(box[0].get_xydata()[0]) for box in ax.containers]
        assert len(boxes) == len(points) == count
        for one, other in combinations(boxes, 2):
            assert not one.overlaps(other)
        assert not any(box.contains(*point) for box in boxes for point in points)
        assert all(ax.get_window_extent().padded(2).contains(*corner) for box in boxes for corner in box.corners())
    keys = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    rows = [row.method.replace("options.", "") for row in group.group.rows]
    assert keys == [f"{number}  {row}" for number, row in enumerate(rows, start=1)]


def test_the_methods_of_the_laboratory_fit_under_their_names(split):
    run, count = split.done["sfao"][0], len(METHODS)
    made = []
    for number, method in enumerate(METHODS):
        metrics = {**run.record.metrics, "average_accuracy": 0.8 + 0.004 * (number * 2 % count)}
        made += copies(run, 1, method=method, metrics=metrics, memory_bytes=10**number, seconds=10 + 5 * (number % 4))
    (group,) = group_runs(made)
    figure = cost_accuracy(group).figure
    assert not figure.legends
    for ax in figure.axes:
        assert sorted(texts(ax)) == sorted(METHODS)
        boxes = [Text.get_window_extent(text) for text in ax.texts]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_costs_that_are_all_zero_or_alike_have_an_axis_in_proportion(runs):
    alike = [run for run in runs if run.name in ("sgd-0", "sgd-1")]
    renamed = [replace(alike[1], record=Record(**{**vars(alike[1].record), "method": "joint"}))]
    (group,) = group_runs([alike[0], *renamed])
    left, _ = cost_accuracy(group).figure.axes
    assert left.get_xscale() == "linear"
    assert [container[0].get_xdata()[0] for container in left.containers] == [0, 0]


def test_many_layers_and_methods_stay_readable(split):
    run = split.done["sfao"][0]
    many = []
    for number in range(30):
        config = {**run.record.config, "options": {**run.options, "accept_above": 0.5 + number / 100}}
        many += [deep(copy, 40) for copy in copies(run, 2, config=config)]
    (group,) = group_runs(many)
    drawn = {drawing.name: drawing for drawing in draw_figures(group)}
    assert len(drawn) == 6
    assert "And 18 more methods, not shown." in drawn["accuracy-matrices"].caption
    assert "And 1188 more layers, not shown." in drawn["decisions"].caption
    assert "All layers of a method together. And 21 more panels, not shown." in drawn["cosines"].caption
    for drawing in drawn.values():
        assert len(drawing.figure.axes) <= 13  # with a colour bar
        assert drawing.figure.get_figheight() < 9.5  # a page


@pytest.mark.parametrize("tasks", [1, 50, *(pytest.param(tasks, marks=pytest.mark.soak) for tasks in (10, 20))])
def test_streams_of_any_length_stay_readable(split, tasks):
    matrix = [[0.5 + 0.4 * (task <= after) for task in range(tasks)] for after in range(tasks)]
    made = []
    for method in ("sgd", "sfao", "ewc", "si", "ogd", "gem", "agem"):
        made += copies(split.done["sfao"][0], 2, method=method, accuracy_matrix=matrix)
    (group,) = group_runs(made)
    drawn = {drawing.name: drawing for drawing in draw_figures(group)}
    assert ("forgetting" in drawn) == (tasks > 1)
    for drawing in drawn.values():
        assert drawing.figure.get_figheight() < 9.5
        assert len(drawing.alt) < 2000


def test_names_are_never_read_as_mathematics_or_markup(split, compared):
    run = split.done["sfao"][0]
    odd = "$\\frac{<b>&\x01"
    (first, *_) = run.record.decisions
    steps = [
        {**line, **{key: {odd: line[key][first]} if line[key] else {} for key in ("gate", "decisions")}}
        for line in run.steps
    ]
    (group,) = group_runs([replace(run, steps=steps)])
    assert titles(decisions_over_time(group).figure) == ["sfao · $\\frac{<b>&?"]


def test_runs_without_steps_have_the_figures_of_their_records(split):
    bare = [replace(run, steps=[]) for runs in split.done.values() for run in runs]
    (group,) = group_runs(bare)
    assert [drawing.name for drawing in draw_figures(group)] == ["cost-accuracy", "accuracy-matrices", "forgetting"]


def test_colours_of_methods_are_the_same_in_every_report(compared):
    def colours(folders):
        (group,) = group_runs(load_runs(folders))
        left, _ = cost_accuracy(group).figure.axes
        return {text.get_text(): box[0].get_color() for text, box in zip(left.texts, left.containers, strict=True)}

    some = colours([compared / "sgd-0", compared / "sfao-0"])
    more = colours([compared / "ewc-0", compared / "sfao-0", compared / "sgd-0"])
    assert len(set(more.values())) == 3
    assert {method: more[method] for method in some} == some


points = st.builds(Point, st.text("abc"), st.floats(0, 1e9), st.floats(0, 1), st.just(0.0), st.just(0.0), st.booleans())


@given(st.lists(points, max_size=12))
def test_the_front_is_what_nothing_else_beats(found):
    def beats(one, other):
        as_good = one.cost <= other.cost and one.accuracy >= other.accuracy
        return as_good and (one.cost, one.accuracy) != (other.cost, other.accuracy)

    front = pareto_front(found)
    rivals = [point for point in found if not point.stores_data]
    for point in rivals:
        beaten = any(beats(other, point) for other in rivals)
        assert beaten != any((point.cost, point.accuracy) == (best.cost, best.accuracy) for best in front)
    assert not any(point.stores_data for point in front)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.01, 0.2))
def test_labels_move_apart_and_keep_their_order(heights, gap):
    moved = spread_out(dict(enumerate(heights)), gap)
    order = sorted(moved, key=lambda name: moved[name])
    assert [heights[name] for name in order] == sorted(heights)
    assert all(moved[b] - moved[a] >= gap - 1e-9 for a, b in pairwise(order))
    assert np.mean(list(moved.values())) == pytest.approx(np.mean(heights), abs=1e-6)
