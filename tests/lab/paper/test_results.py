"""Tables from records: what fills which cell, how it is printed, and what is refused."""

from io import StringIO

import pytest

from sfao.lab.console import PlainConsole
from sfao.lab.paper.archive import Archive
from sfao.lab.paper.render import as_markdown, print_table
from sfao.lab.paper.results import fill_table
from sfao.lab.paper.series import QUICK_FRACTION, Scale, table_series
from sfao.lab.run.errors import FolderError
from tests.lab.paper.made_records import record

TABLE1 = {row: series for (row, _), series in table_series(1, "released").items()}
HALF = {"train": 30000, "complete": False}


def table1(records, **how):
    return fill_table(1, "released", Archive(records), **how)


def row_of(table, name, number=0):
    return [row for row in table.rows if row.name == name][number]


def lines_of(table, kind):
    """Return the cells of the lines of a kind in the Markdown of a table."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in as_markdown(table).splitlines()]
    return [line[2:] for line in lines if len(line) > 1 and line[1].startswith(kind)]


def test_a_row_has_the_final_accuracies_their_average_and_the_forgetting():
    records = [record(TABLE1["SGD"], 0, [0.6, 0.7, 0.5, 0.9, 0.8]), record(TABLE1["SGD"], 1, [0.7, 0.7, 0.5, 0.9, 0.8])]
    table = table1(records)
    cells = {cell.column: cell for cell in row_of(table, "SGD").cells}
    assert table.columns == ["Task 1", "Task 2", "Task 3", "Task 4", "Task 5", "average", "F"]
    assert cells["Task 1"].ours.mean == pytest.approx(65)
    assert cells["Task 1"].ours.std == pytest.approx(50**0.5)
    assert cells["Task 1"].difference == pytest.approx(65 - 67.4)
    assert cells["average"].ours.mean == pytest.approx((70 + 72) / 2)
    # All tasks reached 0.9: (0.3 + 0.2 + 0.4 + 0) / 4 and (0.2 + 0.2 + 0.4 + 0) / 4.
    assert cells["F"].ours.mean == pytest.approx((22.5 + 20) / 2)
    assert cells["F"].paper is None
    assert lines_of(table, "paper")[0][:2] == ["67.4 ± 0.5", "75.9 ± 0.8"]
    assert lines_of(table, "ours")[0] == [
        "65.0 ± 7.1", "70.0 ± 0.0", "50.0 ± 0.0", "90.0 ± 0.0", "80.0 ± 0.0", "71.0 ± 1.4", "21.3 ± 1.8", "2", "all",
    ]  # fmt: skip
    assert lines_of(table, "ours")[1][-2:] == ["not run", ""]
    assert "- Not run: EWC; SI; OGD; SFAO." in as_markdown(table)


def test_memory_and_directions_of_the_runs():
    series = table_series(8, "released")["Split MNIST", "SFAO"]
    archive = Archive([record(series, seed, memory_bytes=2**20 * 3 // 2, directions=200) for seed in range(2)])
    assert lines_of(fill_table(8, "released", archive), "ours")[0] == ["", "1.50", "2", "all"]
    assert lines_of(fill_table(9, "released", archive), "ours")[0] == ["", "200", "2", "all"]


def test_both_formulas_of_the_psm_share_the_line_of_the_paper():
    series = table_series(11, "released")["Split MNIST", "SFAO 0.80"]
    made = record(series, 0, 0.5)
    table = fill_table(11, "released", Archive([made]))
    released, printed = (row for row in table.rows if row.name == "Split MNIST")
    assert released.cells[-1].ours.mean == made.metrics["psm_released"]
    assert printed.cells[-1].ours.mean == made.metrics["psm"]
    assert len(lines_of(table, "paper")) == 5
    assert "ours, (1 - F) / 2, as released" in as_markdown(table)


def test_table_5_as_released_uses_the_first_five_of_fifty_tasks():
    series = table_series(5, "released", True)["SGD", ""]
    table = fill_table(5, "released", Archive([record(series, 0, 0.1, tasks=50)]), as_released=True)
    assert [cell.ours.mean for cell in table.rows[0].cells[:6]] == pytest.approx([90] * 6)
    assert "they cannot be compared" in as_markdown(table)


@pytest.mark.parametrize("change", [{"lr": 0.01}, {"model": {"name": "mlp", "hidden": 99}}, {"scenario": "task"}])
def test_a_run_with_other_settings_fills_nothing(change):
    made = record(TABLE1["SGD"])
    made.config.update(change)
    assert table1([made]).is_empty


def test_one_cell_never_mixes_data():
    with pytest.raises(
        FolderError, match="table1, sgd on split-mnist, must be of runs on the same data, but sgd seed 1"
    ):
        table1([record(TABLE1["SGD"], 0), record(TABLE1["SGD"], 1, data=HALF)])
    with pytest.raises(FolderError, match="table1 must be of runs with 5 tasks, but sgd seed 0 has 4"):
        table1([record(TABLE1["SGD"], 0, tasks=4)])


def test_the_share_of_the_data_is_marked():
    table = table1([record(TABLE1["SGD"], 0, data=HALF), record(TABLE1["EWC"], 0)])
    assert table.is_partial
    assert [line[-1] for line in lines_of(table, "ours")[:2]] == ["part (50 %)", "all"]
    assert "- On a part of the data: 30,000 training images of mnist (50 %)." in as_markdown(table)
    unverified = table1([record(TABLE1["SGD"], 0, data={"published": False})])
    assert "The files of mnist could not be compared with the published ones." in as_markdown(unverified)


def test_a_scale_has_only_its_own_runs():
    series = TABLE1["SGD"]
    scale = Scale(QUICK_FRACTION, is_quick=True)
    quick = record(series, 0, 0.6, config=series.config(scale=scale).model_dump(), data={"train": 6000})
    records = [record(series, 0, 0.9), quick]
    table = table1(records, scale=scale)
    assert row_of(table, "SGD").cells[0].ours.mean == pytest.approx(60)
    assert "Quick run: 0.1 of the training data at 10 times the learning rate" in as_markdown(table)
    assert "Quick" not in as_markdown(table1(records))


def test_failed_runs_are_counted_and_left_out():
    records = [record(TABLE1["SGD"], 0), record(TABLE1["SGD"], 1, status="diverged", accuracy_matrix=[], metrics={})]
    table = table1(records)
    assert row_of(table, "SGD").seeds == [1]
    assert "SGD: 1 runs failed or diverged; the numbers leave them out." in as_markdown(table)


@pytest.mark.parametrize("width", [60, 200])
def test_no_number_is_cut_on_a_narrow_terminal(width):
    series = table_series(3, "released")["SGD", ""]
    console = PlainConsole(file=StringIO(), width=width)
    print_table(fill_table(3, "released", Archive([record(series, seed, 0.123) for seed in range(2)])), console)
    text = console.file.getvalue()
    assert text.count("12.3 ± 0.0") == 11
    assert all(f"Task {number}" in text for number in range(1, 11))
