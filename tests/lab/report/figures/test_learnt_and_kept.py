from sfao.lab.report.comparison import compare_records
from sfao.lab.report.figures import as_picture
from sfao.lab.report.figures.learnt_and_kept import learnt_and_kept
from tests.lab.report.test_comparison import THREE, only_group, record


def points(drawing):
    """(x, y) of the marks: what was learnt, and what was kept, of each method from above."""
    (ax,) = drawing.figure.axes
    marks = [line.get_xydata()[0] for line in ax.lines if line.get_marker() == "o"]
    return [(round(float(x), 3), int(y)) for x, y in marks]


def test_each_method_has_its_two_numbers_the_best_above_and_bounds_below():
    drawing = learnt_and_kept(only_group(THREE))
    (ax,) = drawing.figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["sfao", "ewc", "sgd", "joint (stores data)"]
    kept = [0.8, 0.72, 0.61, 0.91]
    assert points(drawing) == [pair for y, x in enumerate(kept) for pair in ((0.875, y), (x, y))]
    assert {text.get_text() for text in ax.texts} == {f"{x:.3f}" for x in kept}
    assert "ewc 0.875, then 0.720" in drawing.alt


def test_methods_without_a_number_are_left_out_and_nothing_is_drawn_of_none():
    failed = [record("si", 0, status="failed")]
    assert "si " not in learnt_and_kept(only_group([*THREE, *failed])).alt
    assert learnt_and_kept(only_group(failed)) is None


def test_names_of_any_letters_are_drawn():
    (group,) = compare_records([record("א$<&\x07", 0)]).groups
    assert "&lt;&amp;" in as_picture(learnt_and_kept(group))
