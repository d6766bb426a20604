"""The numbers of a paper beside ours, drawn."""

import pytest

from sfao.lab.report.paper_figures import Count, Measurement, Pair, agreement_matrix, paper_and_ours, threshold_sweep


def test_paper_and_ours_stand_in_one_row_with_their_difference():
    one = [Pair("SGD", "sgd", 70.0, 71.5, 0.5), Pair("OGD", "ogd", 90.0, None), Pair("Own", "gpm", None, 95.0)]
    tables = {"one": one, "other": [Pair("OGD", "ogd", 60.0, 60.0, 0.0)]}
    drawing = paper_and_ours(tables, name="both", title="Both", axis="accuracy, %")
    first, second = drawing.figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["SGD", "OGD", "Own"]
    rings, dots = ({y: x for x, y in each.get_offsets().tolist()} for each in first.collections[-2:])
    assert (rings, dots) == ({0: 70.0, 1: 90.0}, {0: 71.5, 2: 95.0})
    assert [[text.get_text() for text in ax.texts] for ax in (first, second)] == [["+1.5"], ["+0.0"]]
    spread, alone = (path.vertices.tolist() for path in first.collections[1].get_paths())
    assert spread == [[71.0, 0.0], [72.0, 0.0]]
    assert alone == [[95.0, 2.0], [95.0, 2.0]]
    low, high = second.get_xlim()
    assert high - low == pytest.approx(20)  # a difference of a point must not fill the panel
    assert "one: SGD 70.0 and 71.5 ± 0.5, OGD 90.0 and none, Own none and 95.0; other: OGD 60.0 and 60.0" in drawing.alt


def test_an_agreement_matrix_tells_agreement_no_spread_and_no_run():
    assert [Count(*numbers, "†").text for numbers in ((3, 5, 5), (0, 0, 5), (0, 0, 0))] == ["3/5†", "?†", "-"]
    matrices = {"one": {"table 1": {"SGD": Count(3, 5, 5), "EWC": Count(0, 0, 5)}}, "other": {"table 2": {}}}
    drawing = agreement_matrix(matrices, ["SGD", "EWC"], name="a", title="A", caption="")
    assert [text.get_text() for text in drawing.figure.axes[0].texts] == ["3/5", "?"]
    assert [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()] == ["table 1", "table 2"]
    assert drawing.alt == "one: table 1: SGD 3 of 5, EWC without a spread. other: table 2: ."


def test_a_sweep_has_a_row_per_measure_a_column_per_benchmark_and_all_series():
    paper = [Measurement(0.9, 0.9), Measurement(0.8, 0.91)]
    here = [Measurement(0.8, 0.85, 0.01), Measurement(0.9, 0.84, 0.02)]
    drawing = threshold_sweep(
        {
            "accuracy": {"digits": {"paper": paper, "here": here}, "letters": {"here": here[:1]}},
            "forgetting": {"digits": {"here": here}},
        },
        ["paper", "here"],
    )
    digits, letters, forgetting, empty = drawing.figure.axes
    assert {box.get_label(): list(box[0].get_ydata()) for box in digits.containers} == {
        "paper": [0.91, 0.9], "here": [0.85, 0.84],
    }  # fmt: skip
    assert digits.containers[0][0].get_markerfacecolor() == "none"
    assert list(digits.containers[0][0].get_xdata()) == pytest.approx([0.795, 0.895])
    bars = [bar.vertices[:, 1].tolist() for bar in digits.containers[1][2][0].get_paths()]
    assert bars == [pytest.approx([0.84, 0.86]), pytest.approx([0.82, 0.86])]
    assert [len(ax.containers) for ax in (letters, forgetting, empty)] == [1, 1, 0]
    assert "digits, accuracy: paper 0.910 0.900, here 0.850 0.840; letters, accuracy: here 0.850 none" in drawing.alt
