"""What a threshold does, drawn: ours and the paper's."""

import pytest

from sfao.lab.report.figures.threshold_sweep import Measurement, threshold_sweep


def test_a_sweep_has_a_row_a_measure_a_column_a_benchmark_and_both_series():
    paper, here = (
        [Measurement(0.9, 0.9), Measurement(0.8, 0.91)],
        [Measurement(0.8, 0.85, 0.01), Measurement(0.9, 0.84, 0.02)],
    )
    drawing = threshold_sweep(
        {
            "accuracy": {"digits": {"paper": paper, "here": here}, "letters": {"here": here[:1]}},
            "forgetting": {"digits": {"here": here}},
        },
        ["paper", "here"],
    )
    digits, letters, forgetting, empty = drawing.figure.axes
    shown = {box.get_label(): list(box[0].get_ydata()) for box in digits.containers}
    assert shown == {"paper": [0.91, 0.9], "here": [0.85, 0.84]}
    assert {box.get_label(): box[0].get_markerfacecolor() for box in digits.containers}["paper"] == "none"
    at = [list(box[0].get_xdata()) for box in digits.containers]
    assert at == [[pytest.approx(0.795), pytest.approx(0.895)], [pytest.approx(0.805), pytest.approx(0.905)]]
    bars = [bar.vertices[:, 1].tolist() for bar in digits.containers[1][2][0].get_paths()]
    assert bars == [pytest.approx([0.84, 0.86]), pytest.approx([0.82, 0.86])]
    assert [len(ax.containers) for ax in (letters, forgetting, empty)] == [1, 1, 0]
    assert [label.get_text() for label in empty.get_xticklabels()] == [".8", ".9"]
    assert "digits, accuracy: paper 0.910 0.900, here 0.850 0.840; letters, accuracy: here 0.850 none" in drawing.alt


@pytest.mark.parametrize("series", [[], ["paper"], list("abcde")])
def test_a_sweep_is_of_what_was_reported_and_something_measured(series):
    with pytest.raises(ValueError, match=f"`series` must be 2 to 4, .* got {len(series)}"):
        threshold_sweep({"accuracy": {"digits": {name: [Measurement(0.8, 0.5)] for name in series}}}, series)
