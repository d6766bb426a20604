"""Every table has runs under every preset, and the folder of a run says what it is."""

from pathlib import Path

import pytest

from sfao.lab.paper.archive import settings_key
from sfao.lab.paper.series import METHODS, PRESETS, QUICK_FRACTION, Scale, find_series, list_names, table_series
from sfao.lab.paper.tables import paper_table, table_numbers

QUICK = Scale(QUICK_FRACTION, is_quick=True)


def config_of(number, row, column="", preset="released", as_released=False):
    return table_series(number, preset, as_released)[row, column].config()


@pytest.mark.parametrize("preset", PRESETS)
def test_every_cell_has_a_configuration_and_different_runs_have_different_folders(preset):
    folders = {}
    for name in list_names():
        for as_released in (False, True):
            for series in find_series(name, preset, as_released):
                config = series.config(1)
                assert folders.setdefault(series.folder(Path("out"), 1), config) == config
    configs = [config.model_dump_json() for config in folders.values()]
    assert len(set(configs)) == len(configs)  # no run has two folders
    for number in table_numbers():
        table, cells = paper_table(number), list(table_series(number, preset))
        by_column = [(row, column) for row in table.rows for column in table.columns]
        assert cells == ([(row, "") for row in METHODS] if table.kind == "accuracy" else by_column)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("number", range(1, 8))
def test_the_rows_of_a_table_share_scenario_model_and_training(number, preset):
    configs = [series.config() for series in table_series(number, preset).values()]
    assert {config.scenario for config in configs} == {"domain"}
    for name in ("benchmark", "tasks", "lr", "momentum", "momentum_form", "batch_size", "epochs"):
        assert len({getattr(config, name) for config in configs}) == 1, name
    assert len({str(config.model) for config in configs}) == 1
    assert (configs[0].model.name == "wrn-28-10") == (number in (4, 6, 7))


def test_preset_paper_is_the_text():
    sfao, ogd = config_of(1, "SFAO", preset="paper"), config_of(1, "OGD", preset="paper")
    assert (sfao.lr, sfao.momentum, sfao.momentum_form, sfao.batch_size, sfao.epochs) == (1e-3, 0.9, "ema", 32, 2)
    assert sfao.model.sizes == {"hidden": 784}
    cifar = config_of(3, "SGD", preset="paper")
    assert (cifar.model.sizes, cifar.batch_size) == ({"fc": 128}, 32)
    names = ("granularity", "cosine", "projection", "accept_above", "discard_below", "capacity", "samples", "target")
    assert [sfao.options[name] for name in names] == ["layer", "signed", "span", 0.85, -1e-4, 200, 10, "loss"]
    assert (ogd.options["directions"], ogd.options["target"], ogd.options["granularity"]) == (None, "loss", "global")


def test_preset_released_is_the_notebooks():
    sfao = config_of(1, "SFAO")
    assert (sfao.momentum, sfao.batch_size, sfao.model.sizes) == (0, 32, {"hidden": 256})
    names = ("granularity", "cosine", "projection", "accept_above", "discard_below", "capacity", "eviction")
    assert [sfao.options[name] for name in names] == ["global", "absolute", "sequential", 0.8, -1, 200, "fifo"]
    assert config_of(3, "SFAO").batch_size == 24
    thresholds = [config_of(number, "SFAO").options["accept_above"] for number in range(1, 8)]
    assert thresholds == [0.80, 0.80, 0.80, 0.85, 0.80, 0.85, 0.85]
    assert [config_of(number, "OGD").options["directions"] for number in (1, 2, 3, 5)] == [None, None, 30, 1]


def test_as_released_follows_the_paper_row_by_row():
    configs = {row: series.config() for (row, _), series in table_series(5, "released", True).items()}
    assert (configs["EWC"].scenario, configs["SI"].scenario, configs["OGD"].scenario) == ("class", "task", "domain")
    assert configs["EWC"].model.name == configs["SI"].model.name == "wrn-28-10"
    assert (configs["SGD"].benchmark, configs["SGD"].options["fresh"]) == ("split-cifar100", True)
    assert table_series(9, "released", True) == table_series(9, "released")


@pytest.mark.parametrize("number", range(1, 8))
def test_a_quick_run_has_less_data_a_higher_rate_and_a_small_model(number):
    for series in table_series(number, "released").values():
        whole, quick = series.config(), series.config(scale=QUICK)
        assert quick.lr * quick.fraction == pytest.approx(whole.lr)
        assert (quick.epochs, quick.batch_size, quick.options) == (whole.epochs, whole.batch_size, whole.options)
        assert quick.model.name != "wrn-28-10"
        assert (quick.model == whole.model) == (whole.model.name != "wrn-28-10")


def test_scales_have_folders_and_keys_of_their_own():
    assert [Scale(fraction, is_quick=True).lr_factor for fraction in (1, 0.5, 0.1, 0.001)] == [1, 2, 10, 10]
    series = table_series(1, "released")["SGD", ""]
    scales = [Scale(), Scale(0.1), QUICK, Scale(0.01, is_quick=True)]
    folders = [series.folder(Path("out"), 0, scale).parent.name for scale in scales]
    assert folders == ["split-mnist", "split-mnist-fraction0.1", "split-mnist-quick", "split-mnist-quick-fraction0.01"]
    assert len({settings_key(series.config(scale=scale).model_dump()) for scale in scales}) == 4


def test_figure_1_needs_every_method_and_figure_2_sfao():
    assert [series.method for series in find_series("figure1", "paper")] == ["sgd", "ewc", "si", "ogd", "sfao"]
    assert [series.method for series in find_series("figure2", "paper")] == ["sfao"]
