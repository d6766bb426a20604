"""The paper's numbers, as printed."""

import pytest

from sfao.lab.paper.tables import implied_forgetting, paper_table, stated_seeds, table_numbers


@pytest.mark.parametrize(
    ("table", "row", "column", "mean", "std"),
    [
        (1, "SGD", "Task 1", 67.4, 0.5),
        (1, "SFAO", "Task 3", 47.2, 1.1),
        (2, "OGD", "p2", 79.8, 0.3),
        (3, "OGD", "Task 10", 66.0, 2.4),
        (4, "SFAO", "Task 10", 58.1, 4.3),
        (5, "EWC", "Task 4", 24.5, 1.8),
        (6, "SI", "Task 5", 96.1, 1.5),
        (7, "SI", "Task 1", 6.4, 0.75),
        (8, "Permuted MNIST (5)", "OGD", 7278.00, None),
        (9, "Split CIFAR-100", "OGD", 300, None),
        (10, "Permuted MNIST (5)", "SFAO 0.80", 0.7887, None),
        (11, "Split CIFAR-100", "SFAO 0.85", 0.4768, None),
    ],
)
def test_numbers_are_as_printed(table, row, column, mean, std):
    number = paper_table(table).rows[row][column]
    assert (number.mean, number.std) == (mean, std)


def test_all_tables_are_complete_and_name_the_source_of_every_row():
    assert table_numbers() == tuple(range(1, 12))
    assert stated_seeds() == 5
    rows = {1: 5, 2: 5, 3: 5, 4: 5, 5: 5, 6: 5, 7: 5, 8: 3, 9: 3, 10: 4, 11: 5}
    columns = {1: 5, 2: 3, 3: 10, 4: 10, 5: 5, 6: 5, 7: 10, 8: 2, 9: 2, 10: 5, 11: 5}
    for number in table_numbers():
        table = paper_table(number)
        assert len(table.rows) == rows[number]
        assert {len(cells) for cells in table.rows.values()} == {columns[number]} == {len(table.columns)}
        assert table.sources.keys() == table.rows.keys()
        assert all(source.text.endswith(".") for source in table.sources.values())


@pytest.mark.parametrize(("table", "row", "mean"), [(1, "SGD", 75.74), (3, "OGD", 15.62), (7, "SFAO", 26.26)])
def test_averages_of_rows(table, row, mean):
    assert paper_table(table).average(row) == pytest.approx(mean, abs=0.006)


def test_forgetting_follows_from_table_11():
    assert implied_forgetting("Split MNIST", "SFAO 0.80") == pytest.approx(0.1300)
    assert implied_forgetting("Split CIFAR-100", "OGD") == pytest.approx(0.4978)
    assert implied_forgetting("Split TinyImageNet", "OGD") is None
    assert implied_forgetting("Split MNIST", "SFAO 0.70") is None
