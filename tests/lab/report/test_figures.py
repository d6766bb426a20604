"""The figures show what the records say."""

import re
from dataclasses import replace
from math import hypot, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.methods import METHODS
from sfao.lab.metrics import average_forgetting
from sfao.lab.report.figures import (
    accuracy_matrices,
    cosine_histogram,
    decisions_over_time,
    draw_figures,
    forgetting_curves,
    forgetting_so_far,
    pareto_front,
    rows_to_show,
    typical_step,
    update_geometry,
)
from sfao.lab.report.gate_steps import collect_steps, count_decisions, intervals_of, layers_of, task_changes
from sfao.lab.report.runs import DECISIONS, group_runs, load_runs
from sfao.lab.report.style import (
    FORMATS,
    METHOD_COLORS,
    Drawing,
    as_pdf,
    as_picture,
    panels,
    shorten,
)
from sfao.lab.run.record import Record
from tests.lab.report.real_runs import run as run_small


def titles(drawing):
    return [ax.get_title(loc="left") for ax in drawing.figure.axes]


def keys(drawing):
    return [text.get_text() for legend in drawing.figure.legends for text in legend.get_texts()]


def copies(run, count, **changes):
    """Runs that differ in their seed, of a record that says something else."""
    made = [Record(**{**vars(run.record), "seed": seed, **changes}) for seed in range(count)]
    return [replace(run, name=f"{run.name}-{one.seed}", record=one) for one in made]


def deep(run, layers):
    """The run as if its first layer had been as many."""
    names = [f"block{number}" for number in range(layers)]
    (first, *_) = run.record.decisions
    steps = [
        {**line, **{key: dict.fromkeys(names, line[key][first]) if line[key] else {} for key in ("decisions", "gate")}}
        for line in run.steps
    ]
    return replace(run, steps=steps)


# -- Selection -------------------------------------------------------------------------------------------------------


def test_a_group_gets_the_figures_that_it_has_data_for(runs, drawn):
    assert list(drawn) == [
        "cost-accuracy", "accuracy-matrices", "forgetting", "update-geometry", "decisions", "cosines",
    ]  # fmt: skip
    (alone,) = group_runs([run for run in runs if run.name == "sgd-0"])
    assert [drawing.name for drawing in draw_figures(alone)] == ["accuracy-matrices", "forgetting"]
    (failed,) = group_runs([run for run in runs if run.record.status == "diverged"])
    assert draw_figures(failed) == []
    for drawing in drawn.values():
        assert drawing.caption.endswith(".")
        assert any(letter.isdigit() for letter in drawing.alt), drawing.name


def test_many_layers_methods_and_names_stay_readable(split):
    run = split.done["sfao"][0]
    many = []
    for number in range(30):
        config = {**run.record.config, "options": {**run.options, "accept_above": 0.5 + number / 100}}
        accuracy = {**run.record.metrics, "average_accuracy": 0.9 if number == 28 else 0.5}
        many += [deep(copy, 40) for copy in copies(run, 2, config=config, metrics=accuracy)]
    (group,) = group_runs(many)
    drawings = {drawing.name: drawing for drawing in draw_figures(group)}
    assert len(drawings) == 6
    (best,) = (row.method for row in rows_to_show(group, 1))
    for name, left in (("cost-accuracy", 10), ("accuracy-matrices", 18), ("forgetting", 10)):
        assert f"And {left} more methods, not shown." in drawings[name].caption
        assert best in drawings[name].alt
    assert "And 1188 more layers, not shown." in drawings["decisions"].caption
    for drawing in drawings.values():
        assert drawing.figure.get_figheight() < 9.5  # a page


@pytest.mark.parametrize("tasks", [1, 50])
def test_any_number_of_tasks_stays_readable(split, tasks):
    matrix = [[0.5 + 0.4 * (task <= after) for task in range(tasks)] for after in range(tasks)]
    made = [
        one for method in METHODS for one in copies(split.done["sfao"][0], 2, method=method, accuracy_matrix=matrix)
    ]
    (group,) = group_runs(made)
    drawings = {drawing.name: drawing for drawing in draw_figures(group)}
    assert ("forgetting" in drawings) == (tasks > 1)
    for drawing in drawings.values():
        assert drawing.figure.get_figheight() < 9.5
        assert len(drawing.alt) < 2000


# -- Accuracy --------------------------------------------------------------------------------------------------------


def test_the_points_of_cost_are_the_rows_of_the_table(split, drawn):
    rows = [row for row in split.group.rows if row.done]
    axes = drawn["cost-accuracy"].figure.axes
    for ax, costs in zip(axes, ([row.memory_bytes for row in rows], [row.seconds for row in rows]), strict=True):
        points = [container[0] for container in ax.containers]
        assert [point.get_ydata()[0] for point in points] == pytest.approx([row.accuracy.mean for row in rows])
        assert [point.get_xdata()[0] for point in points] == pytest.approx(costs)
        assert [point.get_color() for point in points] == [METHOD_COLORS[row.method.split()[0]][0] for row in rows]
    assert keys(drawn["cost-accuracy"]) == [row.method for row in rows]


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1)), max_size=12))
def test_the_front_is_what_nothing_else_beats(points):
    front = pareto_front(points)
    for point in points:
        beaten = any(other[0] <= point[0] and other[1] >= point[1] and other != point for other in points)
        assert beaten != (point in front)


def test_the_cells_of_a_heat_map_are_means_over_seeds(split, drawn):
    assert titles(drawn["accuracy-matrices"]) == list(split.done)
    for ax, own in zip(drawn["accuracy-matrices"].figure.axes, split.done.values(), strict=True):
        expected = np.mean([run.record.accuracy_matrix for run in own], axis=0)
        assert [int(text.get_text()) / 100 for text in ax.texts] == pytest.approx(expected.ravel(), abs=0.0051)
        assert list(ax.collections[0].get_array().ravel()) == pytest.approx(expected.ravel())


@given(
    st.integers(2, 6).flatmap(
        lambda n: st.lists(st.lists(st.floats(0, 1), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_forgetting_so_far_is_the_mean_over_the_tasks_seen(matrix):
    found = forgetting_so_far(matrix)
    assert found[0] == 0
    for now in range(1, len(matrix)):
        drops = [max(matrix[after][task] for after in range(now + 1)) - matrix[now][task] for task in range(now)]
        assert found[now] == pytest.approx(sum(drops) / now)
    assert found[-1] == average_forgetting(matrix)


def test_the_lines_of_forgetting_end_in_the_average_forgetting_of_the_table(split, drawn):
    (ax,) = drawn["forgetting"].figure.axes
    rows = [row for row in split.group.rows if row.done]
    assert keys(drawn["forgetting"]) == [row.method for row in rows]
    assert [line.get_ydata()[-1] for line in ax.lines] == pytest.approx([row.forgetting.mean for row in rows])
    bands = sum(row.done > 1 for row in rows)
    assert len(ax.collections) == bands == 3


# -- The gate --------------------------------------------------------------------------------------------------------


def test_decisions_over_time_add_up_to_the_counts(split, drawn):
    runs = split.done["sfao"]
    layers = layers_of(runs)
    assert titles(drawn["decisions"]) == [f"sfao · {layer}" for layer in layers]
    for ax, layer in zip(drawn["decisions"].figure.axes, layers, strict=True):
        ends = intervals_of(runs, layer)
        assert ends == [0, *(line["step"] for line in runs[0].steps)]
        counts = sum(count_decisions(run, layer, ends) for run in runs)
        last = [run.steps[-1]["decisions"][layer] for run in runs]
        assert counts.sum(axis=0).tolist() == [sum(line[name] for line in last) for name in DECISIONS]
        heights = np.array([area.get_data().values - area.get_data().baseline for area in ax.patches]).T
        assert heights == pytest.approx(counts[:, :3] / counts.sum(axis=1, keepdims=True))
        assert len(ax.lines) == len(task_changes(runs[0])) == 1


def test_the_histogram_counts_every_step_and_marks_the_thresholds(split, drawn):
    runs = split.done["sfao"]
    for ax, layer in zip(drawn["cosines"].figure.axes, layers_of(runs), strict=True):
        steps = collect_steps(runs, layer)
        assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(1)
        for bar in ax.patches:
            low = bar.get_x() + bar.get_width() / 2 - 0.025
            inside = sum(low - 1e-9 <= step.cosine < low + 0.05 - 1e-9 for step in steps)
            assert round(bar.get_height() * len(steps)) == inside
        options = runs[0].options
        assert sorted(line.get_xdata()[0] for line in ax.lines) == [options["discard_below"], options["accept_above"]]


def test_the_geometry_is_that_of_a_recorded_step(split, drawn):
    projected = [step for step in collect_steps(split.done["sfao"]) if step.is_projected]
    step = typical_step(projected)
    told = f"run {step.run.name}, step {step.step}, layer {step.layer}; of {len(projected)} projected"
    assert told in drawn["update-geometry"].caption
    line = next(line for line in step.run.steps if line["step"] == step.step)
    assert line["gate"][step.layer] == {"cosine": step.cosine, "kept": step.kept}
    (ax,) = drawn["update-geometry"].figure.axes
    nearest, removed, gradient, update = (text.xy for text in ax.texts if text.arrow_patch is not None)
    assert hypot(*gradient) == pytest.approx(1)
    assert hypot(*update) == pytest.approx(step.kept)
    assert hypot(*removed) == pytest.approx(sqrt(1 - step.kept**2))
    assert np.add(update, removed) == pytest.approx(gradient)
    # b lies in the span, so its cosine with g is that of its part along Pg.
    assert nearest[0] * gradient[0] == pytest.approx(step.cosine)


@pytest.mark.parametrize(("cosine", "kept"), [(0.999, 0.01), (-0.3, 0.9), (0.0, 0.5), (0.05, 0.9985), (0.9, 0.9)])
def test_the_geometry_of_any_projected_step_can_be_drawn_and_of_no_other(split, cosine, kept):
    run = split.done["sfao"][0]
    steps = [{**run.steps[0], "gate": {"layer": {"cosine": cosine, "kept": kept}}}]
    (group,) = group_runs([replace(run, steps=steps)])
    (ax,) = update_geometry(group).figure.axes
    low, high = ax.get_xlim()
    assert all(low <= text.xy[0] <= high for text in ax.texts)
    gates = [{"a": {"cosine": 0.9, "kept": 1.0}}, {"a": {"cosine": -0.5, "kept": 0.0}}, {"a": {"cosine": 0.5}}]
    (other,) = group_runs([replace(run, steps=[{**run.steps[0], "gate": gate} for gate in gates])])
    assert update_geometry(other) is None


def test_runs_of_a_bound_have_neither_decisions_nor_cosines(tmp_path):
    run_small(tmp_path / "drift-bound-0", "drift-bound")
    (group,) = group_runs(load_runs([tmp_path]))
    assert [decisions_over_time(group), cosine_histogram(group), update_geometry(group)] == [None] * 3


# -- Formats ---------------------------------------------------------------------------------------------------------


def test_a_picture_stands_alone_and_follows_the_theme(drawn):
    for drawing in drawn.values():
        picture = as_picture(drawing)
        assert picture.startswith('<svg role="img"')
        assert "currentColor" in picture
        assert set(re.findall(r"\w+://[^\s\"<]*", picture)) <= {
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xlink",
        }
        assert picture.count("<title>") == 1
    assert ">after task</text>" in as_picture(drawn["accuracy-matrices"])


def test_formats_are_the_same_bytes_for_the_same_runs(split, drawn):
    again = accuracy_matrices(split)
    for form, make in FORMATS.items():
        assert make(drawn["accuracy-matrices"]) == make(again), form
    assert b"CreationDate" not in as_pdf(again)
    assert FORMATS["png"](again).startswith(b"\x89PNG")


def test_odd_names_are_neither_mathematics_nor_markup_and_stop_nothing(split):
    odd = "$\\frac{<b>&\x01\ud800 方法"
    (group,) = group_runs([*copies(split.done["sgd"][0], 1, method=odd), *copies(split.done["sgd"][0], 1)])
    drawing = forgetting_curves(group)
    assert keys(drawing)[0] == "$\\frac{<b>& 方法"
    assert as_pdf(drawing)
    assert "&lt;b&gt;" in as_picture(drawing)
    figure, _ = panels(1, columns=1, height=1)
    assert "&lt;script&gt;??" in as_picture(Drawing("odd", "t", "c", "<script>\x00\ud800", figure))
    assert shorten("a" * 30) == f"{'a' * 12}…{'a' * 13}"
