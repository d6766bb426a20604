"""The figure of a bench."""

from itertools import pairwise

import pytest

from sfao.lab.bench.figures import cost_figure
from sfao.lab.bench.results import Results, Row
from sfao.lab.report.figures.formats import as_pdf, as_picture

SIZES = {"mlp": 203_530, "cnn": 1_070_794, "wrn-28-10": 36_479_194, "mlp-1024": 814_090}


def row(model: str, directions: int, name: str, gate_ms: float) -> Row:
    return Row(
        f"{model}, {directions} directions", name, model, SIZES[model], directions, "dense", None, "float32", 10,
        "project", {"project": 4}, gate_ms + 1, gate_ms, gate_ms + 2, 9, gate_ms + 1, gate_ms, 1000, 100,
    )  # fmt: skip


def results(*rows: Row) -> Results:
    return Results(list(rows), "cpu, batch 32", True, {}, [])


def every(models=("mlp", "cnn"), directions=(10, 200)) -> Results:
    return results(*(row(m, n, name, n * SIZES[m] / 1e6) for m in models for n in directions for name in ("a", "b")))


def test_a_panel_for_every_model_and_one_against_parameters():
    drawing = cost_figure(every())
    left, middle, right = drawing.figure.axes
    assert [ax.get_title("left") for ax in (left, middle, right)] == ["mlp", "cnn", "10 directions a layer"]
    assert [line.get_label() for line in left.lines] == ["a", "b"]
    assert left.lines[0].get_xdata().tolist() == [10, 200]
    assert middle.lines[1].get_ydata().tolist() == pytest.approx([10.70794, 214.1588])
    assert right.lines[0].get_xdata().tolist() == [203_530, 1_070_794]
    assert "cnn, b, 200 directions: 214.16 ms" in drawing.alt


def test_one_model_at_one_size_is_no_figure():
    assert cost_figure(every(("mlp",), (10,))) is None
    assert cost_figure(results()) is None


def test_what_costs_nothing_has_no_place_on_a_logarithmic_axis():
    drawing = cost_figure(results(row("mlp", 10, "a", -0.1), row("mlp", 50, "a", 2.0), row("mlp", 200, "a", 3.0)))
    assert drawing.figure.axes[0].lines[0].get_xdata().tolist() == [50, 200]


@pytest.mark.parametrize("models", [("mlp", "mlp-1024", "cnn"), tuple(SIZES)])
def test_marks_do_not_run_into_one_another(models):
    drawing = cost_figure(every(models))
    drawing.figure.draw_without_rendering()
    axis = drawing.figure.axes[-1]
    boxes = [label.get_window_extent() for label in axis.get_xticklabels() if label.get_text()]
    assert len(boxes) > 1
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_it_can_be_written():
    drawing = cost_figure(every())
    assert as_pdf(drawing).startswith(b"%PDF")
    assert "directions a layer" in as_picture(drawing)
