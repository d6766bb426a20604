"""Tables from records: what fills which cell, and what must never be averaged."""

import json
from io import StringIO

import pytest

from sfao.lab.console import PlainConsole
from sfao.lab.paper.archive import Archive
from sfao.lab.paper.formats import as_json, as_markdown, print_reproduction
from sfao.lab.paper.protocol import protocol
from sfao.lab.paper.reproduced_table import reproduce_table
from sfao.lab.paper.scale import Scale
from sfao.lab.run.errors import FolderError
from tests.lab.paper.made import record

TABLE1 = {row: series for (row, _), series in protocol(1, "released").cells.items()}


def table1(records, asked=2, **how):
    return reproduce_table(1, "released", Archive(records), asked=asked, **how)


def row_of(table, name, number=0):
    return [row for row in table.rows if row.name == name][number]


def text(table, width=120):
    console = PlainConsole(file=StringIO(), width=width)
    print_reproduction(table, console)
    return console.file.getvalue()


def test_a_row_holds_the_accuracies_after_the_last_task_their_average_and_forgetting():
    records = [record(TABLE1["SGD"], 0, [0.6, 0.7, 0.5, 0.9, 0.8]), record(TABLE1["SGD"], 1, [0.7, 0.7, 0.5, 0.9, 0.8])]
    table = table1(records)
    cells = {cell.column: cell for cell in row_of(table, "SGD").cells}
    assert table.columns == ["Task 1", "Task 2", "Task 3", "Task 4", "Task 5", "average", "F"]
    assert cells["Task 1"].ours.mean == pytest.approx(65)
    assert cells["Task 1"].ours.std == pytest.approx(50**0.5)
    assert (cells["Task 1"].paper, cells["Task 1"].paper_std) == (67.4, 0.5)
    assert cells["average"].paper == pytest.approx(75.74)
    assert cells["average"].ours.mean == pytest.approx((70 + 72) / 2)
    # 0.9 was reached by all: (0.3 + 0.2 + 0.4 + 0) / 4 and (0.2 + 0.2 + 0.4 + 0) / 4.
    assert cells["F"].ours.mean == pytest.approx((22.5 + 20) / 2)
    assert cells["F"].paper is None
    assert row_of(table, "EWC").empty
    assert "Missing, with no finished run: EWC, SI, OGD, SFAO." in as_markdown(table)


def test_the_paper_s_forgetting_is_what_table_11_implies_at_the_threshold_that_was_run():
    for preset, implied in (("released", 13.00), ("paper", 13.12)):
        series = protocol(1, preset).cells["SFAO", ""]
        table = reproduce_table(1, preset, Archive([record(series)]), asked=1)
        assert row_of(table, "SFAO").cells[-1].paper == pytest.approx(implied)
    assert row_of(table, "OGD").cells[-1].paper == pytest.approx(0.10)


def test_the_best_of_four_thresholds_is_a_row_once_all_four_have_been_run():
    sweep = protocol(1, "released").sweep
    records = [record(series, 0, 0.6 + 0.1 * (name == "SFAO 0.90")) for name, series in sweep.items()]
    assert len([row for row in table1(records[1:]).rows if "best of four" in row.remark]) == 0
    (best,) = [row for row in table1(records).rows if "best of four" in row.remark]
    assert best.remark.endswith("as the paper chose: 0.90")
    assert best.runs == ["split-mnist/sfao-accept0.90"]
    assert best.cells[0].ours.mean == pytest.approx(70)


def test_the_released_single_run_is_held_against_our_runs_at_its_threshold():
    accuracies = (0.78, 0.80, 0.82)
    records = [record(TABLE1["SFAO"], seed, value, before=0.92) for seed, value in enumerate(accuracies)]
    table = table1(records, asked=3)
    average, forgetting = row_of(table, "SFAO", 1).cells[-2:]
    assert (average.paper, average.agrees, average.in_range) == (pytest.approx(79.35), True, True)
    assert forgetting.ours.mean == pytest.approx(12)
    assert "average 79.35 is inside mean ± 2 std (80.00 ± 2.00) and inside min to max (78.00 to 82.00), n = 3" in (
        as_markdown(table)
    )
    assert "one seed has no spread" in as_markdown(table1(records[:1]))


def test_memory_and_directions_are_what_the_runs_held():
    ogd, sfao = (protocol(8, "released").cells["Split MNIST", column] for column in ("OGD", "SFAO"))
    held = [
        record(ogd, memory_bytes=1876 * 201474 * 4, directions=1876),
        record(sfao, memory_bytes=200 * 201474 * 4, directions=200),
    ]
    memory = reproduce_table(8, "released", Archive(held), asked=1)
    assert [cell.agrees for cell in row_of(memory, "Split MNIST").cells] == [True, True]
    assert "| 1441.82 | 153.71 |" in as_markdown(memory)
    assert "9375 gradients are 7278.80 MB, printed as 7278.00" in as_markdown(memory)
    directions = reproduce_table(9, "released", Archive(held), asked=1)
    cells = row_of(directions, "Split MNIST").cells
    assert [(cell.ours.mean, cell.agrees) for cell in cells] == [(1876, False), (200, True)]
    assert "OGD.ipynb stored 1876 here" in as_markdown(directions)


def test_both_formulas_of_psm():
    series = protocol(11, "released").cells["Split MNIST", "SFAO 0.80"]
    table = reproduce_table(11, "released", Archive([record(series, 0, 0.7, before=0.8)]), asked=1)
    released, printed = (row for row in table.rows if row.name == "Split MNIST")
    assert released.cells[-1].ours.mean == pytest.approx((1 - 0.1) / 2)
    assert printed.cells[-1].ours.mean == pytest.approx(0.7)
    assert "as the released code" in released.remark
    assert "as printed" in printed.remark


def test_table_5_s_first_row_as_released_is_of_the_first_five_of_fifty_tasks():
    series = protocol(5, "released", True).cells["SGD", ""]
    run = record(series, tasks=50)
    run.accuracy_matrix[4] = [0.5, 0.6, 0.5, 0.5, 0.7] + [0.1] * 45
    table = reproduce_table(5, "released", Archive([run]), asked=1, as_released=True)
    assert [cell.ours.mean for cell in row_of(table, "SGD").cells[:5]] == pytest.approx([50, 60, 50, 50, 70])
    assert row_of(table, "SGD").cells[5].ours.mean == pytest.approx(56)
    assert "not to be compared" in as_markdown(table)


def test_tables_8_to_11_have_no_rows_of_another_protocol():
    assert not reproduce_table(9, "released", Archive([]), asked=1, as_released=True).as_released


# -- What must not be mixed ------------------------------------------------------------------------------


def test_fewer_seeds_than_asked_are_said():
    table = table1([record(TABLE1["SGD"], seed) for seed in (0, 1, 2)], asked=5)
    assert "ours, n = 3 of 5" in as_markdown(table)
    assert "ours, n = 3 of 5" in text(table)


@pytest.mark.parametrize(
    "change",
    [
        {"scenario": "class"},
        {"fraction": 0.1},
        {"epochs": 7},
        {"tasks": 2},
        {"evaluate": "validation", "validation": 0.1},
    ],
)
def test_a_run_with_other_settings_fills_nothing(change):
    other = record(TABLE1["SGD"], 1, 0.1)
    other.config.update(change)
    table = table1([record(TABLE1["SGD"], 0, 0.8), other])
    assert row_of(table, "SGD").counts == [1]
    assert row_of(table, "SGD").cells[0].ours.mean == pytest.approx(80)


def test_a_run_on_another_benchmark_fills_nothing():
    other = protocol(2, "released").cells["SGD", ""]
    assert table1([record(other, 0)]).empty


@pytest.mark.parametrize("row", ["SGD", "EWC"])
def test_records_of_different_data_in_one_table_are_refused(row):
    records = [record(TABLE1["SGD"], 0), record(TABLE1[row], 1, data={"train": 600, "complete": False})]
    with pytest.raises(
        FolderError, match=r"table1 must be of one data set, but of split-mnist sgd seed 0 is on 60,000"
    ):
        table1(records)


def test_records_of_other_values_in_one_table_are_refused():
    records = [record(TABLE1["SGD"], seed, data={"digest": digest}) for seed, digest in enumerate("ab")]
    with pytest.raises(FolderError, match=r"table1 must be of one data set, but .* of the digest a and some .* of b"):
        table1(records)


def test_records_of_fewer_tasks_than_the_table_has_are_refused():
    with pytest.raises(FolderError, match="table1 must be of runs of 5 tasks, but sgd seed 0 has 2"):
        table1([record(TABLE1["SGD"], 0, tasks=2)])


def test_a_slice_is_shown_only_when_it_is_asked_for_and_says_so():
    few = {"train": 600, "complete": False}
    archive = Archive([record(TABLE1["SGD"], 0, 0.9), record(TABLE1["SGD"], 0, 0.6, fraction=0.01, data=few)])
    whole, part = (reproduce_table(1, "released", archive, asked=1, scale=Scale(fraction)) for fraction in (1.0, 0.01))
    assert row_of(whole, "SGD").cells[0].ours.mean == pytest.approx(90)
    assert row_of(part, "SGD").cells[0].ours.mean == pytest.approx(60)
    assert whole.caveats == []
    assert part.caveats == ["On a slice of mnist, 600 training images: not results on all of it."]
    assert part.caveats[0] in text(part)
    assert row_of(part, "SGD").runs == ["split-mnist-fraction0.01/sgd"]


def test_a_part_of_the_data_is_said():
    table = table1([record(TABLE1["SGD"], data={"train": 600, "complete": False})])
    assert "- On a part of mnist, 600 training images: not results on all of it." in as_markdown(table)


def test_runs_that_did_not_end_well_are_counted_apart():
    records = [
        record(TABLE1["SGD"], 0, 0.9),
        record(TABLE1["SGD"], 1, status="diverged", accuracy_matrix=[], metrics={}),
    ]
    table = table1(records)
    assert row_of(table, "SGD").cells[0].ours.n == 1
    assert "SGD: 1 diverged; their seeds are not in the numbers." in as_markdown(table)


# -- Views -------------------------------------------------------------------------------------------------


def test_markdown_has_three_lines_a_row_and_the_verdict():
    records = [record(TABLE1["SGD"], seed, [0.67 + seed / 100, 0.5, 0.5, 0.5, 0.5]) for seed in (0, 1)]
    lines = as_markdown(table1(records)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("| SGD |"))
    assert lines[at].startswith("| SGD | paper | 67.4 ± 0.5 | 75.9 ± 0.8 |")
    assert lines[at + 1].startswith("|  | ours, n = 2 | 67.5 ± 0.7 | 50.0 ± 0.0 |")
    assert lines[at + 2].startswith("|  | difference | +0.1 ✓ | -25.9 ✗ |")
    assert "- The paper's SGD: One run of SGD.ipynb" in "\n".join(lines)


def test_where_seeds_differ_between_columns_every_cell_has_its_count():
    ogd, sfao = (protocol(10, "released").cells["Split CIFAR-10", column] for column in ("OGD", "SFAO 0.80"))
    table = reproduce_table(10, "released", Archive([record(ogd, 0), record(sfao, 0), record(sfao, 1)]), asked=2)
    line = next(line for line in as_markdown(table).splitlines() if "(n = 1 of 2)" in line)
    assert "0.5000 (n = 1 of 2)" in line
    assert "0.5000 ± 0.0000 (n = 2)" in line


def test_what_has_been_run_is_told_apart_from_what_is_missing():
    ogd = protocol(10, "released").cells["Split CIFAR-10", "OGD"]
    told = as_markdown(reproduce_table(10, "released", Archive([record(ogd, 0)]), asked=1))
    assert "- Runs: split-cifar10: ogd.\n" in told
    others = "Permuted MNIST (3), Permuted MNIST (5), Split CIFAR-100"
    sweep = "SFAO 0.95, SFAO 0.90, SFAO 0.85, SFAO 0.80 on Split CIFAR-10"
    assert f"- Missing, with no finished run: {others}; {sweep}.\n" in told


def test_rows_of_another_protocol_are_offered_as_the_paper_s_were_produced():
    records = [record(TABLE1["SGD"], 0)]
    offer = "- Of another protocol in the paper: EWC, SI; `sfao reproduce table1 --as-released` follows it."
    assert offer in as_markdown(table1(records))
    assert "--as-released" not in as_markdown(
        reproduce_table(1, "released", Archive(records), asked=1, as_released=True)
    )
    assert "--as-released" not in as_markdown(reproduce_table(8, "released", Archive(records), asked=1))


def test_json_is_plain_and_complete():
    values = json.loads(json.dumps(as_json(table1([record(TABLE1["SGD"], seed) for seed in (0, 1)])), allow_nan=False))
    assert values["table"] == "table1"
    cell = values["rows"][0]["cells"][0]
    assert cell["ours"]["n"] == 2
    assert (cell["difference"], cell["agrees"]) == (pytest.approx(50 - 67.4), False)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_ten_tasks_fit_a_terminal_in_pieces_and_nothing_is_cut(width):
    series = protocol(3, "released").cells["SGD", ""]
    table = reproduce_table(
        3, "released", Archive([record(series, seed, data={"train": 50000}) for seed in (0, 1)]), asked=2
    )
    lines = text(table, width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert "…" not in "".join(lines)
    assert sum("Task 1 " in line for line in lines) == 1
    assert sum("Task 10" in line for line in lines) == 1
