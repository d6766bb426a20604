"""The figures of the results page show what the records say."""

import re

import pytest

from sfao.lab.paper.archive import Archive
from sfao.lab.paper.page_figures import draw_agreement, draw_figure1, draw_looks, draw_threshold_effect
from sfao.lab.paper.paper import table_numbers
from sfao.lab.paper.protocol import figure_series, protocol
from sfao.lab.paper.reproduced_table import reproduce_table
from sfao.lab.report.style import as_picture
from tests.lab.paper.made import record

TABLE1 = {row: series for (row, _), series in protocol(1, "released").cells.items()}
SWEEP = protocol(11, "released").cells
PART = {"train": 600, "complete": False}


def table(number, records, **how):
    return reproduce_table(number, "released", Archive(records), asked=5, **how)


def everything(seeds=3):
    """Records for all that the released preset has, each seed a little different."""
    series = [
        one
        for number in table_numbers()
        for as_released in (False, True)
        for one in protocol(number, "released", as_released).cells.values()
    ]
    few = {"split-tinyimagenet": 10}
    return Archive(
        record(one, seed, 0.5 + seed / 50, data=PART, tasks=few.get(one.benchmark))
        for one in dict.fromkeys(series)
        for seed in range(seeds)
    )


def titles(drawing):
    return [ax.get_title(loc="left") for ax in drawing.figure.axes]


def size(drawing):
    return len(as_picture(drawing).encode())


# -- Average accuracy, paper and ours ---------------------------------------------------------------------------


def test_the_averages_are_those_of_the_tables_also_where_there_are_no_runs():
    one = table(1, [record(TABLE1["SGD"], seed, 0.7 + seed / 50) for seed in range(3)])
    drawing = draw_agreement([one])
    assert titles(drawing) == ["Table 1, Split MNIST"]
    assert "SGD 75.7 and 72.0 ± 2.0, EWC 33.6 and none" in drawing.alt
    assert "one seed" not in drawing.caption
    rings, dots = (each.get_offsets().tolist() for each in drawing.figure.axes[0].collections[-2:])
    assert rings[0] == [pytest.approx(75.74), 0]
    assert (len(rings), dots) == (5, [[pytest.approx(72), 0]])


def test_a_method_s_own_row_is_drawn_and_none_of_those_beside_it():
    one = table(1, [record(TABLE1["SFAO"], 0, 0.7)])
    assert len([row for row in one.rows if row.name == "SFAO"]) == 2
    drawing = draw_agreement([one])
    assert drawing.alt.count("SFAO") == 1
    assert "which one seed alone has not" in drawing.caption


def test_what_is_on_a_part_of_the_data_says_so():
    drawing = draw_agreement([table(1, [record(TABLE1["SGD"], seed, data=PART) for seed in range(2)])])
    assert titles(drawing) == ["Table 1, Split MNIST *"]
    assert drawing.caption.endswith(" *: on a part of the training data.")
    assert "*" not in draw_agreement([table(1, [record(TABLE1["SGD"])])]).caption


def test_one_seed_on_a_part_of_the_data_is_a_look_and_stands_in_a_figure_of_its_own():
    look, solid = table(1, [record(TABLE1["SGD"], data=PART)]), table(1, [record(TABLE1["SGD"])])
    assert draw_agreement([look]) is None
    assert draw_looks([solid]) is None
    drawing = draw_looks([look, solid])
    assert titles(drawing) == ["Table 1, Split MNIST *, n = 1"]
    assert drawing.name == "paper-and-ours-one-seed"
    assert titles(draw_agreement([look, solid])) == ["Table 1, Split MNIST"]
    again = table(1, [record(TABLE1["SGD"], data=PART)], as_released=True)
    assert draw_looks([again]) is None
    assert draw_looks([again], as_released=True).name == "paper-and-ours-one-seed-as-released"


def test_rows_run_as_the_paper_s_were_are_a_figure_of_their_own():
    tables = [table(1, [record(TABLE1["SGD"], 0, last)], as_released=last == 0.6) for last in (0.5, 0.6)]
    plain, released = draw_agreement(tables), draw_agreement(tables, as_released=True)
    assert (plain.name, released.name) == ("paper-and-ours", "paper-and-ours-as-released")
    assert "SGD 75.7 and 50.0" in plain.alt
    assert "SGD 75.7 and 60.0" in released.alt
    assert "preset released, every row as the paper's was produced" in released.caption
    assert draw_agreement(tables[:1], as_released=True) is None


def test_tables_without_a_column_a_task_have_no_averages_to_show():
    assert draw_agreement([]) is None
    assert draw_agreement([table(9, [record(protocol(9, "released").cells["Split MNIST", "OGD"])])]) is None


# -- The threshold ------------------------------------------------------------------------------------------------


def test_thresholds_are_drawn_with_the_paper_s_accuracy_and_the_forgetting_that_its_psm_implies():
    runs = [record(SWEEP["Split CIFAR-10", "SFAO 0.90"], seed, 0.6 + seed / 10, before=0.8) for seed in (0, 1)]
    drawing = draw_threshold_effect("released", Archive(runs))
    assert titles(drawing)[0] == "Split CIFAR-10"
    assert "Split CIFAR-10, average accuracy: paper 0.622 0.615 0.649 0.652, ours none none 0.650 none" in drawing.alt
    # 1 - 2 PSM; ours fell from 0.8 to 0.6 and 0.7.
    assert "Split CIFAR-10, forgetting: paper 0.136 0.145 0.109 0.081, ours none none 0.150 none" in drawing.alt
    accuracy, forgetting = drawing.figure.axes
    for ax, spread in ((accuracy, 0.1), (forgetting, 0.1)):
        (bar,) = ax.containers[1][2][0].get_paths()
        assert bar.vertices[1, 1] - bar.vertices[0, 1] == pytest.approx(2 * spread / 2**0.5)


def test_where_the_paper_prints_no_accuracies_there_is_the_run_of_its_notebook():
    drawing = draw_threshold_effect("released", Archive([record(SWEEP["Split MNIST", "SFAO 0.80"], data=PART)]))
    assert titles(drawing)[0] == "Split MNIST *"
    assert "Split MNIST *, average accuracy: paper 0.793 none none none, ours 0.500 none none none" in drawing.alt
    assert "*: on a part of the training data" in drawing.caption


def test_no_threshold_no_figure():
    diverged = record(SWEEP["Split MNIST", "SFAO 0.80"], status="diverged", accuracy_matrix=[], metrics={})
    assert draw_threshold_effect("released", Archive([record(TABLE1["SGD"]), diverged])) is None


# -- The paper's figure 1 -----------------------------------------------------------------------------------------


def test_figure_1_needs_no_more_than_records():
    series = figure_series("figure1", "released")
    drawing = draw_figure1("released", Archive(record(one, seed) for one in series for seed in (0, 1)))
    assert drawing.name == "figure1-released"
    (legend,) = drawing.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["sgd", "ewc", "si", "ogd", "sfao"]
    assert "60,000 training images of mnist" in drawing.caption
    assert draw_figure1("paper", Archive([record(series[0])])) is None  # of another preset


# -- All of it ----------------------------------------------------------------------------------------------------


def test_figures_of_everything_that_could_be_run_are_legible_and_small():
    archive = everything()
    tables = [
        reproduce_table(number, "released", archive, asked=3, as_released=as_released)
        for number in range(1, 8)
        for as_released in (False, True)
    ]
    averages = [draw_agreement(tables, as_released) for as_released in (False, True)]
    drawn = [*averages, draw_threshold_effect("released", archive), draw_figure1("released", archive)]
    assert [len(titles(drawing)) for drawing in drawn] == [7, 7, 10, 1]
    for drawing in drawn:
        assert size(drawing) < 100_000
        figure = drawing.figure
        for ax in figure.axes:
            for text in (ax._left_title, *ax.texts):
                box = text.get_window_extent()
                assert box.x1 <= figure.bbox.x1 + 1, text.get_text()
                assert box.x0 >= figure.bbox.x0 - 1, text.get_text()
        assert not re.search(r"\d{4}-\d\d-\d\d", as_picture(drawing))
