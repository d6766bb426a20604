"""The paper's averages and ours, drawn in one row."""

import pytest

from sfao.lab.report.figures.paper_and_ours import Pair, paper_and_ours


def marks(ax):
    """{height: place} of the rings and of the dots."""
    rings, dots = (each.get_offsets().tolist() for each in ax.collections[-2:])
    return {y: x for x, y in rings}, {y: x for x, y in dots}


def test_paper_and_ours_stand_in_one_row_with_their_difference():
    drawing = paper_and_ours(
        {
            "one": [
                Pair("SGD", "sgd", 70.0, 71.5, 0.5),
                Pair("OGD", "ogd", 90.0, None),
                Pair("Own", "gpm", None, 95.0),
            ],
            "other": [Pair("OGD", "ogd", 60.0, 60.0, 0.0)],
        },
        name="both",
        title="Both",
        axis="accuracy, %",
    )
    one, other = drawing.figure.axes
    assert [label.get_text() for label in one.get_yticklabels()] == ["SGD", "OGD", "Own"]
    assert marks(one) == ({0: 70.0, 1: 90.0}, {0: 71.5, 2: 95.0})
    assert [[text.get_text() for text in ax.texts] for ax in (one, other)] == [["+1.5"], ["+0.0"]]
    (spread,) = (path.vertices.tolist() for path in one.collections[1].get_paths())
    assert spread == [[71.0, 0.0], [72.0, 0.0]]
    assert marks(other) == ({1: 60.0}, {1: 60.0})
    low, high = other.get_xlim()
    assert high - low == pytest.approx(20)  # a difference of a point must not fill the panel
    assert "one: SGD 70.0 and 71.5 ± 0.5, OGD 90.0 and none, Own none and 95.0; other: OGD 60.0 and 60.0" in drawing.alt
