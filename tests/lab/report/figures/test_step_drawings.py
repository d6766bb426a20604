"""Figures of single steps: their geometry, decisions and cosines."""

from dataclasses import replace
from math import hypot, sqrt

import numpy as np
import pytest
from matplotlib.patches import StepPatch

from sfao.lab.report.figures import draw_figures
from sfao.lab.report.figures.cosine_histogram import cosine_histogram
from sfao.lab.report.figures.decisions_over_time import count_decisions, decisions_over_time
from sfao.lab.report.figures.gate_looks import collect_looks
from sfao.lab.report.figures.update_geometry import pick_typical_step, update_geometry
from sfao.lab.report.groups import group_runs
from sfao.lab.report.runs import load_runs
from tests.lab.report.figures.test_drawings import copies, titles
from tests.lab.report.real_runs import run as run_small


def test_the_geometry_is_that_of_a_recorded_step(split):
    drawing = update_geometry(split)
    found = [look for look in collect_looks(split.done["sfao"]) if look.is_projected]
    look = pick_typical_step(found)
    assert f"run {look.run.name}, step {look.step}, layer {look.layer}; of {len(found)} projected" in drawing.caption
    line = next(line for line in look.run.steps if line["step"] == look.step)
    assert line["gate"][look.layer] == {"cosine": look.cosine, "kept": look.kept}
    (ax,) = drawing.figure.axes
    arrows = [text.xy for text in ax.texts if text.arrow_patch is not None]
    nearest, removed, gradient, update = arrows
    assert hypot(*gradient) == pytest.approx(1)
    assert hypot(*update) == pytest.approx(look.kept)
    assert hypot(*removed) == pytest.approx(sqrt(1 - look.kept**2))
    assert np.add(update, removed) == pytest.approx(gradient)
    assert np.dot(update, removed) == 0
    # b lies in the span, so its cosine with g is that of its part along Pg.
    assert nearest[0] * gradient[0] == pytest.approx(look.cosine)


def test_a_projection_that_is_not_exact_is_told(split):
    run = split.done["sfao"][0]
    for projection, told in (("span", False), ("sequential", True)):
        config = {**run.record.config, "options": {**run.options, "projection": projection}}
        (group,) = group_runs(copies(run, 1, config=config))
        assert ("u and Pg are not exactly orthogonal" in update_geometry(group).caption) == told


@pytest.mark.parametrize(("cosine", "kept"), [(0.999, 0.01), (-0.3, 0.9), (0.0, 0.5), (0.05, 0.9985), (0.9, 0.9)])
def test_the_geometry_can_be_drawn_of_any_step(split, cosine, kept):
    run = split.done["sfao"][0]
    steps = [{**run.steps[0], "gate": {"layer": {"cosine": cosine, "kept": kept}}}]
    (group,) = group_runs([replace(run, steps=steps)])
    (ax,) = update_geometry(group).figure.axes
    low, high = ax.get_xlim()
    for text in ax.texts:
        if text.arrow_patch is not None:
            assert low <= text.xy[0] <= high
            assert hypot(text.xy[0], text.xy[1] + 0.035) <= 1.05


def test_a_step_that_was_not_projected_has_no_geometry(split):
    run = split.done["sfao"][0]
    gates = [{"a": {"cosine": 0.9, "kept": 1.0}}, {"a": {"cosine": -0.5, "kept": 0.0}}]
    (group,) = group_runs([replace(run, steps=[{**run.steps[0], "gate": gate} for gate in gates])])
    assert update_geometry(group) is None


def test_decisions_over_time_add_up_to_the_counts(split):
    runs = split.done["sfao"]
    for layer in runs[0].record.decisions:
        steps, counts = count_decisions(runs, layer)
        last = [run.steps[-1]["decisions"][layer] for run in runs]
        assert counts.sum(axis=0).tolist() == [
            sum(line[name] for line in last) for name in ("accept", "project", "discard", "zero")
        ]
        assert steps.tolist() == [0, *(line["step"] for line in runs[0].steps)]
        assert (counts >= 0).all()


def test_a_run_that_lost_its_steps_leaves_the_others_theirs(split):
    first, second = split.done["sfao"]
    layer = next(iter(first.record.decisions))
    for lost in (replace(second, steps=[]), replace(second, steps=second.steps[:1])):
        (group,) = group_runs([first, lost])
        assert len(count_decisions(group.done["sfao"], layer)[1]) == (len(lost.steps) or len(first.steps))
        assert {drawing.name for drawing in draw_figures(group)} >= {"decisions", "cosines", "update-geometry"}


def test_runs_without_a_step_in_common_have_no_decisions_to_show(split):
    first, second = split.done["sfao"][:2]
    apart = [replace(first, steps=first.steps[:1]), replace(second, steps=second.steps[1:])]
    group = replace(split, done={"sfao": apart})
    assert decisions_over_time(group) is None


def test_the_areas_of_decisions_are_shares_of_the_steps(split):
    figure = decisions_over_time(split).figure
    gates = [(row, layer) for row in ("sfao",) for layer in split.done[row][0].record.decisions]
    assert titles(figure) == [f"{row} · {layer}" for row, layer in gates]
    for ax, (row, layer) in zip(figure.axes, gates, strict=True):
        _, counts = count_decisions(split.done[row], layer)
        areas = [patch.get_data() for patch in ax.patches if isinstance(patch, StepPatch)]
        heights = np.array([area.values - area.baseline for area in areas]).T
        assert heights == pytest.approx(counts[:, :3] / counts.sum(axis=1, keepdims=True))


def test_the_histogram_counts_every_look_and_marks_the_thresholds(split):
    figure = cosine_histogram(split).figure
    runs = split.done["sfao"]
    for ax, layer in zip(figure.axes, runs[0].record.decisions, strict=True):
        own = [look for look in collect_looks(runs) if look.layer == layer]
        counted = {round(bar.get_x() + bar.get_width() / 2, 3): bar.get_height() * len(own) for bar in ax.patches}
        for middle, count in counted.items():
            inside = sum(middle - 0.025 - 1e-9 <= look.cosine < middle + 0.025 - 1e-9 for look in own)
            assert round(count) == inside
        assert sum(counted.values()) == pytest.approx(len(own))
        options = runs[0].record.config["options"]
        marked = sorted(line.get_xdata()[0] for line in ax.lines)
        assert marked == [options["discard_below"], options["accept_above"]]


def test_runs_of_a_bound_have_neither_decisions_nor_cosines(tmp_path):
    run_small(tmp_path / "drift-bound-0", "drift-bound")
    (group,) = group_runs(load_runs([tmp_path]))
    steps = group.done["drift-bound"][0].steps
    assert set(steps[-1]["gate"]["classifier"]) == {"drift", "allowed", "acted", "clipped"}
    drawn = {drawing.name.rpartition("-")[2] for drawing in draw_figures(group)}
    assert not {"decisions", "cosines"} & drawn
