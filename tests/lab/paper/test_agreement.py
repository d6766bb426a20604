"""Agreement with the paper: what is counted, and the picture of it."""

from sfao.lab.paper.agreement import Tally, count_table, judge_table
from sfao.lab.paper.agreement_figure import draw_matrix
from sfao.lab.paper.archive import Archive
from sfao.lab.paper.paper import paper_table
from sfao.lab.paper.protocol import protocol
from sfao.lab.paper.reproduced_table import reproduce_table
from sfao.lab.report.paper_figures import Count
from sfao.lab.report.style import as_picture
from tests.lab.paper.made import record

#: What the paper prints for SGD in table 1.
PRINTED = [cell.mean / 100 for cell in paper_table(1).rows["SGD"]]


def near(values, seed):
    """The values, a little different for every seed, so that there is a spread."""
    return [value + (seed - 1) / 1000 for value in values]


def table1(rows, seeds=3, **how):
    cells = protocol(1, "released").cells
    records = [
        record(cells[row, ""], seed, near(values, seed)) for row, values in rows.items() for seed in range(seeds)
    ]
    return reproduce_table(1, "released", Archive(records), asked=5, **how)


def test_cells_are_counted_by_method_and_only_those_that_can_be_judged():
    off = [PRINTED[0] + 0.2, *PRINTED[1:]]
    table = table1({"SGD": off, "OGD": [0.5] * 5})
    tallies = {one.method: one.tally for one in judge_table(table)}
    assert tallies["SGD"] == Tally(4, 5, 5)
    assert tallies["OGD"] == Tally(0, 5, 5)
    assert tallies["EWC"] == Tally()
    assert count_table(table) == Tally(4, 10, 10)
    assert count_table(table1({"SGD": PRINTED}, seeds=1)) == Tally(0, 0, 5)  # one seed has no spread


def test_rows_of_another_protocol_are_foreign_unless_they_are_run_as_the_paper_s_were():
    foreign = {one.method for one in judge_table(table1({"SGD": PRINTED})) if one.is_foreign}
    assert foreign == {"EWC", "SI"}
    again = reproduce_table(1, "released", Archive([]), asked=5, as_released=True)
    assert not any(one.is_foreign for one in judge_table(again))


def test_tables_whose_columns_are_methods_are_counted_by_column():
    cells = protocol(10, "released").cells
    runs = [record(cells["Split CIFAR-10", "SFAO 0.90"], seed, 0.6487 + seed / 1000) for seed in range(3)]
    table = reproduce_table(10, "released", Archive(runs), asked=5)
    found = [one for one in judge_table(table) if one.tally.filled]
    assert [(one.method, one.tally) for one in found] == [("SFAO", Tally(1, 1, 1))]


def test_the_text_of_a_cell_tells_agreement_no_spread_and_no_run():
    assert [Count(*numbers, "†").text for numbers in ((3, 5, 5), (0, 0, 5), (0, 0, 0))] == ["3/5†", "?†", "-"]


def test_the_picture_has_every_table_and_tells_what_it_shows():
    drawing = draw_matrix([table1({"SGD": PRINTED})])
    (ax,) = drawing.figure.axes
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows[0] == "1 Split MNIST"
    assert rows[-2:] == ["11 PSM, as the released code", "11 PSM, as printed"]
    assert len(rows) == 12
    assert {"5/5", "-"} <= {text.get_text() for text in ax.texts}
    assert drawing.alt.startswith("released, one protocol: 1 Split MNIST: SGD 5 of 5, EWC not run")
    assert "<title" in as_picture(drawing)
    assert draw_matrix([]) is None


def test_no_text_of_the_picture_lies_outside_it():
    tables = [
        table1({"SGD": PRINTED}),
        reproduce_table(1, "paper", Archive([]), asked=5),
        reproduce_table(1, "recommended", Archive([]), asked=5),
        reproduce_table(1, "released", Archive([]), asked=5, as_released=True),
    ]
    figure = draw_matrix(tables).figure
    assert [ax.get_title(loc="left").split(",")[0] for ax in figure.axes] == ["released"] * 2 + ["paper", "recommended"]
    for ax in figure.axes:
        for text in (*ax.texts, *ax.get_yticklabels(), *ax.get_xticklabels()):
            box = text.get_window_extent()
            assert box.x0 >= figure.bbox.x0 - 1
            assert box.x1 <= figure.bbox.x1 + 1
