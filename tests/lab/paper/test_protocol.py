"""Every table can be run under every preset, and a run's folder says what it is."""

from pathlib import Path

import pytest

from sfao.lab.paper.paper import paper_table, table_numbers
from sfao.lab.paper.protocol import FIGURES, METHODS, PRESETS, figure_series, list_names, protocol
from sfao.lab.paper.provenance import provenance
from sfao.lab.paper.scale import Scale


def all_series(preset):
    for number in table_numbers():
        for as_released in (False, True):
            runs = protocol(number, preset, as_released)
            yield from (*runs.cells.values(), *runs.sweep.values())
    for name in FIGURES:
        yield from figure_series(name, preset)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("number", table_numbers())
def test_every_cell_of_every_table_has_runs_that_can_be_configured(number, preset):
    table = paper_table(number)
    for as_released in (False, True):
        runs = protocol(number, preset, as_released)
        if table.kind == "accuracy":
            assert list(runs.cells) == [(row, "") for row in METHODS]
            assert len(runs.sweep) == 4
        else:
            assert list(runs.cells) == [(row, column) for row in table.rows for column in table.columns]
        for series in (*runs.cells.values(), *runs.sweep.values()):
            assert series.config(3).seed == 3


@pytest.mark.parametrize("preset", PRESETS)
def test_two_runs_share_a_folder_only_if_they_are_the_same(preset):
    folders = {}
    for series in all_series(preset):
        config = series.config(1)
        assert folders.setdefault(series.folder(Path("out"), 1), config) == config
    configs = [config.model_dump_json() for config in folders.values()]
    assert len(set(configs)) == len(configs)  # and what is the same is run once


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("number", range(1, 8))
def test_a_table_is_of_one_scenario_one_model_and_one_way_to_train(number, preset):
    configs = [series.config() for series in protocol(number, preset).cells.values()]
    assert {config.scenario for config in configs} == {"domain"}
    for name in ("benchmark", "tasks", "lr", "momentum", "momentum_form", "batch_size", "epochs"):
        assert len({getattr(config, name) for config in configs}) == 1, name
    assert len({str(config.model) for config in configs}) == 1
    wide = configs[0].model.name == "wrn-28-10"
    assert wide == (number in (4, 6, 7))


def test_the_paper_taken_literally():
    sfao, ogd = (protocol(1, "paper").cells[row, ""].config() for row in ("SFAO", "OGD"))
    assert (sfao.lr, sfao.momentum, sfao.momentum_form, sfao.batch_size, sfao.epochs) == (1e-3, 0.9, "ema", 32, 2)
    assert sfao.model.sizes == {"hidden": 784}
    assert protocol(3, "paper").cells["SGD", ""].config().model.sizes == {"fc": 128}
    assert protocol(3, "paper").cells["SGD", ""].config().batch_size == 32
    names = ("granularity", "cosine", "projection", "accept_above", "discard_below", "capacity", "samples", "target")
    assert [sfao.options[name] for name in names] == ["layer", "signed", "span", 0.85, -1e-4, 200, 10, "loss"]
    assert (ogd.options["directions"], ogd.options["target"], ogd.options["granularity"]) == (None, "loss", "global")


def test_what_the_notebooks_do():
    sfao = protocol(1, "released").cells["SFAO", ""].config()
    assert (sfao.momentum, sfao.batch_size, sfao.model.sizes) == (0, 32, {"hidden": 256})
    names = ("granularity", "cosine", "projection", "accept_above", "discard_below", "capacity", "eviction")
    assert [sfao.options[name] for name in names] == ["global", "absolute", "sequential", 0.8, -1, 200, "fifo"]
    assert protocol(3, "released").cells["SFAO", ""].config().batch_size == 24
    thresholds = [
        protocol(number, "released").cells["SFAO", ""].config().options["accept_above"] for number in range(1, 8)
    ]
    assert thresholds == [0.80, 0.80, 0.80, 0.85, 0.80, 0.85, 0.85]
    stored = [protocol(number, "released").cells["OGD", ""].config().options["directions"] for number in (1, 2, 3, 5)]
    assert stored == [None, None, 30, 1]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_sweep_of_table_10_is_that_of_the_tables_with_a_column_a_task(preset):
    """Whoever has run one finds it in the other."""
    sweep = protocol(2, preset).sweep
    for column, series in sweep.items():
        assert protocol(10, preset).cells["Permuted MNIST (3)", column] == series
        assert series.config().options["accept_above"] == float(column.removeprefix("SFAO "))


def test_folders_are_named_by_what_was_run():
    def folder(number, row, column="", preset="released", as_released=False, **how):
        series = protocol(number, preset, as_released).cells[row, column]
        return series.folder(Path("out"), 4, **how).as_posix()

    assert folder(1, "SGD") == "out/released/split-mnist/sgd-4"
    assert folder(1, "SFAO", preset="paper", scale=Scale(0.05)) == "out/paper/split-mnist-fraction0.05/sfao-4"
    assert folder(6, "EWC") == "out/released/split-cifar10-wrn/ewc-4"
    assert folder(10, "Permuted MNIST (5)", "SFAO 0.95") == "out/released/permuted-mnist-tasks5/sfao-accept0.95-4"
    assert folder(10, "Permuted MNIST (5)", "SFAO 0.80") == "out/released/permuted-mnist-tasks5/sfao-4"
    assert folder(1, "SI", as_released=True) == "out/released/split-mnist/si-task-4"
    assert folder(3, "SGD", as_released=True) == "out/released/split-cifar100/sgd-fresh-4"
    assert folder(5, "SGD", as_released=True) == "out/released/split-cifar100-tasks50/sgd-fresh-4"


def test_as_released_follows_the_paper_row_by_row():
    configs = {row: series.config() for (row, _), series in protocol(5, "released", True).cells.items()}
    assert (configs["EWC"].scenario, configs["SI"].scenario, configs["OGD"].scenario) == ("class", "task", "domain")
    assert configs["EWC"].model.name == configs["SI"].model.name == "wrn-28-10"
    assert (configs["SGD"].benchmark, configs["SGD"].options["fresh"]) == ("split-cifar100", True)
    assert protocol(9, "released", True) == protocol(9, "released")


def test_names_are_those_of_the_paper():
    assert list_names() == (*(f"table{number}" for number in range(1, 12)), "figure1", "figure2")


@pytest.mark.parametrize("number", table_numbers())
def test_every_row_says_where_it_comes_from_in_a_sentence(number):
    for row in paper_table(number).rows:
        source = provenance(number, row).source
        assert source.endswith(".")
        assert "\n" not in source
        assert len(source) > 20
